"""A built-in tool whose record is at hand, and whose code is imported with its first call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.catalog.function import FunctionTool

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.calls import AuthorizedCall, ToolOutput
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import ToolResult
    from toolpost.contracts.questions import Question
    from toolpost.contracts.spec import ToolSpec
    from toolpost.contracts.tool import Preview


class DeferredTool(FunctionTool):
    """Stands in the catalog for the tool that `load` makes."""

    __slots__ = ("_load",)

    def __init__(self, spec: ToolSpec, load: Callable[[], FunctionTool]) -> None:
        self.spec = spec
        self._load = load

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the plain function."""
        return self._load()(*args, **kwargs)

    @property
    def previewer(self) -> Preview | None:
        """What says of each call what it would do, if the tool has one."""
        return self._load().previewer

    def renamed(self, spec: ToolSpec) -> FunctionTool:
        """The same tool under another record."""
        return DeferredTool(spec, self._load)

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Run one call."""
        return await self._load().invoke(call)

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the function without the pipeline."""
        return await self._load().execute(params, context)
