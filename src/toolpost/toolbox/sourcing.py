"""Brings the configured sources into the catalog and keeps them there; one that fails leaves the others alone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolpost.auth.static import static_credential, with_environment
from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolError
from toolpost.contracts.events import EventCode
from toolpost.contracts.sources import LiveSource
from toolpost.toolbox.factories import Lent, make_source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolpost.auth.authorizer import Authorizer
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.config import ExternalToolConfig, ToolOverride
    from toolpost.contracts.sources import SourceHealth, ToolSource
    from toolpost.contracts.tool import Tool
    from toolpost.toolbox.factories import Factory

    Tell = Callable[[str, EventCode, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """How a source fares: its tools, or why it has none."""

    name: str
    transport: str
    ok: bool
    tools: int = 0
    error: str | None = None


class _Member:
    """One source and what it has in the catalog: its tools by the name they were registered under."""

    def __init__(self, config: ExternalToolConfig) -> None:
        self.config = config
        self.source: ToolSource | None = None
        self.tools: dict[str, Tool] = {}
        self.hidden = 0
        self.error: str | None = None
        self.problems: list[str] = []

    @property
    def state(self) -> SourceState:
        source, error = self.source, self.error
        if error is None and isinstance(source, LiveSource) and source.health.state == "down":
            error = source.health.detail
        shown = len(self.tools) - self.hidden
        return SourceState(
            name=self.config.name,
            transport=self.config.transport.value,
            ok=error is None,
            tools=shown if error is None else 0,
            error=error,
        )


class Sources:
    """The sources of one Toolbox; it hears from those that change and exchanges their tools without a gap.

    With `resolve`, `${VAR}` in a configuration is filled in; one that came from a file has that behind it.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        authorizer: Authorizer,
        *,
        factories: Mapping[str, Factory] | None = None,
        overrides: Mapping[str, ToolOverride] | None = None,
        lent: Lent | None = None,
        resolve: bool = True,
        tell: Tell = lambda _name, _code, _facts: None,
    ) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._factories = factories or {}
        self._overrides = overrides or {}
        self._lent = lent or Lent()
        self._resolve = resolve
        self._tell = tell
        self._members: dict[str, _Member] = {}

    @property
    def states(self) -> list[SourceState]:
        """How each source fares now."""
        return [member.state for member in self._members.values()]

    @property
    def problems(self) -> list[str]:
        """What was left out of the catalog, and why."""
        return [problem for member in self._members.values() for problem in member.problems]

    def source(self, name: str) -> ToolSource | None:
        """The source of this name, if it is open."""
        member = self._members.get(name)
        return None if member is None else member.source

    def tools(self, name: str) -> list[Tool]:
        """The tools of one source that are in the catalog."""
        member = self._members.get(name)
        return [] if member is None else list(member.tools.values())

    async def load_all(self, configs: Sequence[ExternalToolConfig]) -> None:
        """Bring all in at once, so that a slow one delays nobody; only a required one may stop everything."""
        enabled = [config for config in configs if config.enabled]
        results = await asyncio.gather(*(self.load(config) for config in enabled), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def load(self, config: ExternalToolConfig) -> None:
        """Bring one source in."""
        if not config.enabled:
            return
        if config.name in self._members:
            raise ConfigError(f"two sources are named {config.name!r}; rename one of them")
        member = self._members[config.name] = _Member(config)
        try:
            await self._connect(member)
        except ToolError as error:
            member.error = str(error)
            if config.required:
                raise ConfigError(f"required source {config.name!r} failed: {error}", cause=error) from error
        if isinstance(member.source, LiveSource):
            member.source.watch(self)

    async def _connect(self, member: _Member) -> None:
        try:
            config = member.config = with_environment(member.config) if self._resolve else member.config
            credential = static_credential(config)
            self._authorizer.share(config.name, credential)
            member.source = make_source(config, credential, self._lent, self._factories)
            found = await member.source.discover()
        except ToolError:
            raise
        except (Exception, SystemExit) as raised:
            raise ToolConnectionError(f"{type(raised).__name__}: {raised}", cause=raised) from raised
        self._exchange(member, found, getattr(member.source, "problems", ()))

    def tools_found(self, source: ToolSource, tools: Sequence[Tool], problems: Sequence[str]) -> None:
        """A source says what it offers from now on."""
        member = self._members[source.name]
        member.error = None
        self._exchange(member, tools, problems)

    def state_changed(self, source: ToolSource, state: SourceHealth) -> None:
        """A source came up or went down."""
        code = EventCode.SOURCE_UP if state.state == "up" else EventCode.SOURCE_DOWN
        self._tell(source.name, code, {"state": state.state, "detail": state.detail})

    def logged(self, source: ToolSource, level: str, text: str) -> None:
        """A source's other side wrote to its log."""
        self._tell(source.name, EventCode.SOURCE_LOGGED, {"level": level, "text": text})

    def _exchange(self, member: _Member, tools: Sequence[Tool], problems: Sequence[str]) -> None:
        """Make the catalog hold just these tools of a source; what did not change is not touched."""
        old, member.tools, member.hidden = member.tools, {}, 0
        member.problems = list(problems)
        for tool in tools:
            held = old.pop(tool.spec.name, None)
            if held is not None and held.spec == tool.spec:
                self._keep(member, held)
            else:
                self._add(member, tool, replaces=held is not None)
        for gone in old.values():
            self._remove(gone, member)

    def _keep(self, member: _Member, tool: Tool) -> None:
        member.tools[tool.spec.name] = tool
        override = self._override(tool, member.config)
        member.hidden += override is not None and override.hide

    def _add(self, member: _Member, tool: Tool, *, replaces: bool) -> None:
        """Register one tool; a broken one is set aside and told of."""
        name, config = tool.spec.name, member.config
        try:
            self._registry.register(
                tool, source=member.source, config=config, override=self._override(tool, config), replace=replaces
            )
        except ToolError as error:
            member.problems.append(f"tool {name!r} of source {config.name!r} is set aside: {error}")
            return
        self._keep(member, tool)

    def _override(self, tool: Tool, config: ExternalToolConfig) -> ToolOverride | None:
        name = tool.spec.name
        return config.overrides.get(name.partition(".")[2]) or self._overrides.get(name)

    def _remove(self, tool: Tool, member: _Member) -> None:
        override = self._override(tool, member.config)
        if override is not None and override.hide:
            self._registry.hidden.pop(tool.spec.name, None)
            return
        name = tool.spec.name
        if override is not None and override.name:
            name = f"{member.config.name}.{override.name}"
        self._registry.unregister(name)

    def withdraw(self) -> None:
        """Take all tools out of the catalog, which goes on without them."""
        for member in self._members.values():
            self._exchange(member, (), ())

    async def close(self) -> None:
        """Close every source, all at once; one that fails to close does not keep the others open."""
        opened = [member.source for member in self._members.values() if member.source is not None]
        await asyncio.gather(*(source.close() for source in opened), return_exceptions=True)
        for member in self._members.values():
            member.source = None
