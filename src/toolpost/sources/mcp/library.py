"""A server's resources and prompts, for programs that want them without a call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from toolpost.sources.mcp.paging import list_all
from toolpost.sources.mcp.resources import read_resource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from toolpost.contracts.calls import ToolOutput
    from toolpost.contracts.context import ToolContext
    from toolpost.sources.mcp.session import Link


class Library:
    """Reads over the source's own session."""

    def __init__(self, connect: Callable[[], Awaitable[Link]], *, timeout_s: float) -> None:
        self._connect = connect
        self._timeout_s = timeout_s

    async def list_resources(self) -> Sequence[Mapping[str, Any]]:
        """The resources that the server offers now."""
        async with asyncio.timeout(self._timeout_s):
            return await list_all(await self._connect(), "resources/list", "resources")

    async def read_resource(self, uri: str, *, context: ToolContext | None = None) -> ToolOutput:
        """One resource's content; more than one file needs the context of a call to be kept in."""
        async with asyncio.timeout(self._timeout_s):
            return await read_resource(await self._connect(), uri, lambda: cast("ToolContext", context))

    async def list_prompts(self) -> Sequence[Mapping[str, Any]]:
        """The prompts that the server offers now."""
        async with asyncio.timeout(self._timeout_s):
            return await list_all(await self._connect(), "prompts/list", "prompts")

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        """One prompt's messages, filled in."""
        async with asyncio.timeout(self._timeout_s):
            link = await self._connect()
            raw = await link.ask("prompts/get", {"name": name, "arguments": dict(arguments)})
        return cast("list[dict[str, Any]]", raw.get("messages") or [])
