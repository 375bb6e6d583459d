"""The other end of a `Worker`: measures the contenders of one module in whatever interpreter runs it.

`python -m bench.core.worker MODULE`; the module has `contenders()`, an
async context manager that yields a list of them; `MODULE:NAME` takes
another one. Standard library only.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any, TextIO

from bench.core.harness import Contender, LocalTrack
from toolpost.cli.stdout_guard import guard_stdout

Contenders = Callable[[], AbstractAsyncContextManager[list[Contender]]]


async def serve(contenders: Contenders, requests: TextIO, answers: TextIO) -> None:
    """Say the names, then measure one turn for each line until the lines end."""
    async with contenders() as present:
        track = LocalTrack(present)
        _say(answers, track.names)
        # Nothing else happens on this loop while it waits for the next turn, so that it may block.
        for line in requests:
            wish = json.loads(line)
            _say(answers, await track.turn(wish["name"], wish["calls"]))


def _say(answers: TextIO, value: Any) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def main(module: str) -> None:
    """Serve on stdin and stdout."""
    home, _, name = module.partition(":")
    with guard_stdout() as answers:
        asyncio.run(serve(getattr(import_module(home), name or "contenders"), sys.stdin, answers))


if __name__ == "__main__":
    main(sys.argv[1])
