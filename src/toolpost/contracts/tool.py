"""The Protocol of a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import ToolResult
    from toolpost.contracts.questions import CallPreview
    from toolpost.contracts.spec import ToolSpec

    Preview = Callable[[dict[str, Any], ToolContext], Awaitable[CallPreview | None]]


@runtime_checkable
class PreviewingTool(Protocol):
    """A tool that can say of each call what it would do."""

    async def preview(self, params: dict[str, Any], context: ToolContext) -> CallPreview | None:
        """What the call would do; None is what the tool declares."""
        ...


@runtime_checkable
class Tool(Protocol):
    """A capability with a contract; built-in, custom and external tools all have this shape."""

    @property
    def spec(self) -> ToolSpec:
        """What the tool is."""
        ...

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run it; a failure is a result with `success=False`, or an error raised."""
        ...
