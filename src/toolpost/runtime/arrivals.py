"""The Protocol by which calls wait for tools whose source is still connecting."""

from __future__ import annotations

from typing import Protocol


class Arrivals(Protocol):
    """Whoever connects the sources: knows which tools may yet come."""

    def may_have(self, tool_name: str) -> bool:
        """Whether a tool that is not in the catalog is of a source that is connecting or down."""
        ...

    def is_connecting(self, tool_name: str) -> bool:
        """Whether a tool that is not in the catalog may yet come, with its source."""
        ...

    def is_stale(self, tool_name: str) -> bool:
        """Whether a tool is in the catalog from an earlier listing, while the server that runs it is connecting."""
        ...

    async def arrive(self, tool_name: str, *, within_s: float) -> None:
        """Wait for the source of a tool; ToolSourceDownError when it is down or takes longer."""
        ...


class NoArrivals:
    """For a catalog that nothing is on its way to."""

    def may_have(self, tool_name: str) -> bool:
        """No."""
        return False

    def is_connecting(self, tool_name: str) -> bool:
        """No."""
        return False

    def is_stale(self, tool_name: str) -> bool:
        """No."""
        return False

    async def arrive(self, tool_name: str, *, within_s: float) -> None:
        """There is nothing to wait for."""
