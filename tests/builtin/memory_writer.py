"""Appends lines to a memory file, again and again; for tests that run several at once, or kill one."""

import asyncio
import sys

from toolpost.builtin.memory import memory_append
from toolpost.contracts.context import ToolContext


async def main(folder: str, who: str, count: int) -> None:
    context = ToolContext(memory_dir=folder)
    print("ready", flush=True)
    for number in range(count):
        await memory_append("facts/log.md", f"- {who} {number}\n", context, summary=f"{who} {number}")


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
