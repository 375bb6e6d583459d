"""The function that every contender of the native call runs, and what it is called with."""

from __future__ import annotations

ARGUMENTS = {"a": 1, "b": 2, "c": 3}
SUM = 6


async def add3(a: int, b: int, c: int) -> int:
    """Add three numbers."""
    return a + b + c
