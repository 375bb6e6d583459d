"""Node: an async function of a message and a context, with a name."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from toolpost.compat.penguiflow.registry import ModelRegistry

__all__ = ["Node", "NodePolicy"]


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """Validation of messages and results by `Node.invoke`, and the deadline of one call in seconds."""

    validate: Literal["both", "in", "out", "none"] = "both"
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.validate not in ("both", "in", "out", "none"):
            raise ValueError(f"validate must be one of 'both', 'in', 'out', 'none', not {self.validate!r}")


@dataclass(slots=True, eq=False)
class Node:
    """A function `async def f(args, ctx)` under a name, by default its own."""

    func: Callable[[Any, Any], Awaitable[Any]]
    name: str = ""
    policy: NodePolicy = field(default_factory=NodePolicy)

    def __post_init__(self) -> None:
        self.name = self.name or str(getattr(self.func, "__name__", ""))
        if not inspect.iscoroutinefunction(self.func):
            raise TypeError(f"Node {self.name!r} must be declared with async def")
        needed = [one for one in inspect.signature(self.func).parameters.values() if one.default is one.empty]
        if len(needed) != 2:
            raise ValueError(f"Node {self.name!r} must accept exactly two parameters, args and ctx")
        if needed[1].kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            raise ValueError(f"Context parameter must be positional in Node {self.name!r}")

    async def invoke(self, message: Any, ctx: Any, *, registry: ModelRegistry | None = None) -> Any:
        """Call the function with a validated message; return its validated result."""
        checked = "none" if registry is None else self.policy.validate
        if registry is None or checked == "none":
            return await self.func(message, ctx)
        read_args, read_out = registry.adapters(self.name)
        arguments = read_args.validate_python(message) if checked in ("in", "both") else message
        result = await self.func(arguments, ctx)
        if result is None or checked == "in":
            return result
        return read_out.validate_python(result)
