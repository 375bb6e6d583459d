"""Asks built-in tools as a model would: arguments are validated first, then the tool runs."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from toolpost.catalog.registry import ToolRegistry
from toolpost.contracts.context import ToolContext
from toolpost.contracts.outcomes import ToolResult
from toolpost.contracts.spec import Tool


class Caller:
    """Some tools, and the folders that calls may touch."""

    def __init__(self, tools: Iterable[Tool], allowed: Sequence[Path] | None = None) -> None:
        self.registry = ToolRegistry()
        self.registry.register_many([*tools])
        self.context = ToolContext(allowed_paths=None if allowed is None else [*map(str, allowed)])

    async def ask(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        entry = self.registry.find(name)
        result = await entry.tool.execute(entry.fit(arguments), self.context)
        if result.success and entry.output_validator is not None:
            entry.output_validator.check(result.result, name)
        return result

    async def do(self, name: str, **arguments: Any) -> dict[str, Any]:
        """What a call returns; it must succeed."""
        result = await self.ask(name, arguments)
        assert result.success, result.error
        return dict(result.result)

    async def refused(self, name: str, **arguments: Any) -> dict[str, Any]:
        """What a call fails with; it must fail."""
        result = await self.ask(name, arguments)
        assert not result.success, result.result
        assert result.error_info is not None
        return result.error_info
