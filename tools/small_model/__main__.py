"""`python -m tools.small_model`: start the small model, let it answer two requests with tools, and show each step."""

import asyncio
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.parts import python_of_llm
from toolpost.agents import CallEnded, CallStarted, ModelReplied, PlannerEvent
from tools.small_model.agent import answer
from tools.small_model.running import small_model

REQUESTS = ("What is the weather in Oslo?", "What is 17 plus 25?")


async def main(python: Path) -> int:
    """Run the demo; return 0 when the model called a tool and answered, each time."""
    console = Console(highlight=False)
    began = time.perf_counter()
    async with small_model(python) as url:
        console.print(f"SmolLM2, 135 million parameters, serves {url} after {time.perf_counter() - began:.1f} s.")
        good = [await _show(console, url, request) for request in REQUESTS]
    console.print("The server has ended.")
    return 0 if all(good) else 1


async def _show(console: Console, url: str, request: str) -> bool:
    """Let the model answer one request, and show what it did."""
    steps = _Steps(request)
    result = await answer(url, request, steps.receive)
    steps.add("answer", str(result.answer) if result.answer else f"none: {dict(result.metadata)}")
    console.print(steps.table)
    called = any(call["status"] == "completed" for call in result.metadata["done"])
    return called and result.reason == "answer_complete"


class _Steps:
    """A table of the steps of a run, with the time that each took."""

    def __init__(self, request: str) -> None:
        self.table = Table(show_header=False, pad_edge=False)
        self._last = time.perf_counter()
        self.add("request", request)

    def add(self, what: str, shown: str) -> None:
        """Add a step, and the time since the one before."""
        now = time.perf_counter()
        self.table.add_row(what, shown, f"{(now - self._last) * 1000:.0f} ms")
        self._last = now

    def receive(self, event: PlannerEvent) -> None:
        """Add an event of the planner."""
        match event:
            case ModelReplied(usage=usage):
                self.add("model", f"{usage.output_tokens} tokens written, {usage.input_tokens} read so far")
            case CallStarted(tool_name=name, arguments=arguments):
                self.add("call", f"{name} {dict(arguments)}, valid by the grammar")
            case CallEnded(status=status, text=text):
                self.add("result", f"{status}: {text}")
            case _:
                pass


if __name__ == "__main__":
    sys.exit(asyncio.run(main(python_of_llm())))
