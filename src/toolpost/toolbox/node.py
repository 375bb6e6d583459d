"""ToolNode: one external source whose tools enter a registry that is shared with others."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolNodeError
from toolpost.toolbox.standalone import Standalone, without_questions

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.sources import CredentialProvider, SourceHealth
    from toolpost.contracts.tool import Tool


@dataclass(slots=True)
class ToolNode:
    """An external tool source: connect it, and its tools stand in `registry` as `{name}.{tool}`.

    `auth_manager` lends each user's credential; without one the configuration's own is
    used. `server` is an MCP server object of this process to talk to. Unlike a Toolbox,
    a node fails loudly: what goes wrong is raised.
    """

    config: ExternalToolConfig
    registry: ToolRegistry
    auth_manager: CredentialProvider | None = None
    server: Any = None
    _open: Standalone | None = field(default=None, init=False, repr=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)

    async def connect(self, ctx: ToolContext | None = None) -> None:
        """Connect and register the tools; nothing happens when it is connected already."""
        async with self._turn:
            if self._open is None:
                self._open = await self._opened()

    async def _opened(self) -> Standalone:
        name = self.config.name
        opened = Standalone(
            self.registry,
            servers={name: self.server} if self.server is not None else None,
            credentials={name: self.auth_manager} if self.auth_manager is not None else None,
        )
        try:
            wanted = self.config.model_copy(update={"enabled": True, "required": True})
            await opened.sources.load(without_questions(wanted))
            self._refuse_collisions(opened)
        except BaseException as error:
            await _taken_down(opened)
            if isinstance(error, ConfigError) and error.__cause__ is not None:
                raise error.__cause__ from None
            raise
        return opened

    def _refuse_collisions(self, opened: Standalone) -> None:
        """A name that is taken is a mistake of whoever joined the two; a bad schema is the server's alone."""
        for problem in opened.sources.problems:
            if problem.startswith("Duplicate tool name"):
                raise ToolNodeError(problem)
        for tool, problem in opened.sources.collisions(self.config.name).items():
            raise ToolNodeError(f"Tool name collision for '{tool}' (native tool or another ToolNode): {problem}")

    @property
    def problems(self) -> list[str]:
        """What was left out, and why."""
        return [] if self._open is None else self._open.sources.problems

    @property
    def health(self) -> SourceHealth | None:
        """How the connection is doing, for sources that have one."""
        source = None if self._open is None else self._open.sources.source(self.config.name)
        return getattr(source, "health", None)

    def get_tools(self) -> list[Tool]:
        """The tools that this node brought into the registry."""
        if self._open is None:
            raise ToolNodeError(f"ToolNode '{self.config.name}' not connected")
        return self._open.sources.tools(self.config.name)

    async def call(self, tool_name: str, args: Any, ctx: ToolContext | None = None) -> Any:
        """Call a tool by its full or its bare name; returns its content, and raises what went wrong."""
        if self._open is None:
            await self.connect(ctx)
        if self._open is None:
            raise ToolConnectionError(f"ToolNode '{self.config.name}' was closed", sent=False)
        prefix = f"{self.config.name}."
        name = tool_name if tool_name.startswith(prefix) else prefix + tool_name
        return (await self._open.call(name, args, ctx)).content

    async def close(self) -> None:
        """Disconnect, and take the tools out of the registry; safe to call twice."""
        async with self._turn:
            opened, self._open = self._open, None
            if opened is not None:
                await _taken_down(opened)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _taken_down(opened: Standalone) -> None:
    """Take the tools out of the registry, then close what they came from."""
    opened.sources.withdraw()
    await opened.close()
