"""The catalog that agents of others drive, and what their scripted models wish for."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from toolpost import Settings, Toolbox, model_text, tool

WISHES: list[tuple[str, dict[str, Any]]] = [("add", {"a": 2, "b": 4}), ("fail", {}), ("drop", {"name": "users"})]
read: list[str] = []
dropped: list[str] = []


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="read")
async def fail() -> None:
    """Fail."""
    raise LookupError("nobody is there")


@tool(side_effects="write", destructive=True)
async def drop(name: str) -> str:
    """Drop a table."""
    dropped.append(name)
    return f"{name} dropped"


async def text_of(box: Toolbox, name: str, arguments: dict[str, Any]) -> str:
    """Call a tool and return what a model reads of it."""
    read.append(model_text(await box.call(name, arguments, user="acme:ann")))
    return read[-1]


async def drive(run: Callable[[Toolbox], Awaitable[str]]) -> None:
    """Run an agent over the catalog; print its answer, what its model read, and what came of the calls."""
    async with Toolbox(tools=[add, fail, drop], settings=Settings(data_dir=None)) as box:
        answer = await run(box)
        waiting = [action.tool_name for action in await box.pending.list(by="acme:ann")]
    print(json.dumps({"answer": answer, "read": read, "waiting": waiting, "dropped": dropped}))
