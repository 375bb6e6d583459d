"""Brings the configured sources into the catalog; one that fails is told of and leaves the others alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolError
from toolpost.sources.python import PythonSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.config import ExternalToolConfig, ToolOverride
    from toolpost.contracts.sources import ToolSource
    from toolpost.contracts.tool import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """How a source fared: its tools, or why it has none."""

    name: str
    transport: str
    ok: bool
    tools: int = 0
    error: str | None = None


class Sources:
    """The sources of one Toolbox."""

    def __init__(
        self,
        registry: ToolRegistry,
        factories: Mapping[str, Callable[[ExternalToolConfig], ToolSource]],
        overrides: Mapping[str, ToolOverride],
    ) -> None:
        self._registry = registry
        self._factories = {"python": PythonSource, **factories}
        self._overrides = overrides
        self._open: list[ToolSource] = []
        self.states: list[SourceState] = []
        self.problems: list[str] = []

    async def load(self, config: ExternalToolConfig) -> None:
        """Bring one source in; only a required one may stop everything."""
        if not config.enabled:
            return
        transport = config.transport.value
        try:
            tools = await self._connect(config)
        except ToolError as error:
            if config.required:
                msg = f"required source {config.name!r} failed: {error}"
                raise ConfigError(msg, cause=error) from error
            self.states.append(SourceState(name=config.name, transport=transport, ok=False, error=str(error)))
            return
        self.states.append(SourceState(name=config.name, transport=transport, ok=True, tools=tools))

    async def _connect(self, config: ExternalToolConfig) -> int:
        factory = self._factories.get(config.transport.value)
        if factory is None:
            known = ", ".join(sorted(self._factories))
            msg = f"no source here speaks transport {config.transport.value!r}; there are: {known}"
            raise ConfigError(msg)
        try:
            source = factory(config)
            self._open.append(source)
            found = await source.discover()
        except ToolError:
            raise
        except (Exception, SystemExit) as raised:
            raise ToolConnectionError(f"{type(raised).__name__}: {raised}", cause=raised) from raised
        return sum(self._add(tool, source, config) for tool in found)

    def _add(self, tool: Tool, source: ToolSource, config: ExternalToolConfig) -> bool:
        """Register one tool; a broken one is set aside and told of."""
        name = tool.spec.name
        override = config.overrides.get(name.partition(".")[2]) or self._overrides.get(name)
        try:
            self._registry.register(tool, source=source, config=config, override=override)
        except ToolError as error:
            self.problems.append(f"tool {name!r} of source {config.name!r} is set aside: {error}")
            return False
        return override is None or not override.hide

    async def close(self) -> None:
        """Close every source."""
        for source in self._open:
            await source.close()
        self._open.clear()
