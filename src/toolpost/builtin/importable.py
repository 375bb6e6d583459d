"""Built-in tools as importable objects: `from toolpost.builtin import read_file, all_task_tools`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from toolpost.builtin.agent_tools import agent_tools
from toolpost.builtin.loader import BuiltinParts, Builtins, DeferredTool
from toolpost.builtin.specs import COLLECTIONS, read_specs
from toolpost.stores.memory.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from toolpost.catalog.function import FunctionTool
    from toolpost.contracts.calls import AuthorizedCall
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import ToolResult


class ImportedTool(DeferredTool):
    """A built-in tool for your own registry or test; a Toolbox replaces it by its own tool of that name."""

    __slots__ = ()

    async def execute(self, params: dict[str, Any], context: ToolContext | Mapping[str, Any]) -> ToolResult:
        if self.spec.name not in COLLECTIONS["network_tools"]:
            return await super().execute(params, context)
        builtins = _new_builtins()
        try:
            return await builtins.load(self.spec.name).execute(params, context)
        finally:
            await builtins.close()

    def start(self, call: AuthorizedCall) -> Awaitable[Any]:
        """Start a call; its connections end with it, because no Toolbox closes them."""
        return self._run_alone(call) if self.spec.name in COLLECTIONS["network_tools"] else super().start(call)

    async def _run_alone(self, call: AuthorizedCall) -> Any:
        builtins = _new_builtins()
        try:
            return await builtins.load(self.spec.name).start(call)
        finally:
            await builtins.close()


@cache
def imported_tool(name: str) -> FunctionTool:
    """Return a built-in tool, including those of agents; raise KeyError for an unknown name."""
    for tool in agent_tools():
        if tool.spec.name == name:
            return tool
    return ImportedTool(read_specs()[name], lambda: _shared_builtins().load(name))


@cache
def imported_collection(name: str) -> tuple[FunctionTool, ...]:
    """Return the tools of a collection."""
    return tuple(map(imported_tool, COLLECTIONS[name]))


@cache
def _shared_builtins() -> Builtins:
    return _new_builtins()


def _new_builtins() -> Builtins:
    return Builtins(BuiltinParts(store=MemoryStore, keeps_programs=False))
