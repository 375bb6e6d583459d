"""The planner of the documents in a process of its own: `python -m tests.postgres.planners ask|resume URL [TOKEN]`.

It says on stdout what came of it; one that has asked then waits, until it is killed.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from tests.docs.blocks import ROOT, blocks


def written(folder: Path) -> None:
    """Write the files that the page shows."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    shown = {block.file_name: block.text for block in blocks(page, page="extending.md")}
    for name in ("postgres_state.py", "planner.py"):
        (folder / name).write_text(shown[name], encoding="utf-8")


@contextmanager
def planner(folder: Path, deed: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """One that works in this folder; killed by its id if it still lives at the end."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-m", "tests.postgres.planners", deed, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=env, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def said(process: "subprocess.Popen[str]") -> str:
    """The next line that a planner says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def main(deed: str, url: str, token: str = "") -> None:
    program = import_module("planner")
    async with program.planning(url) as (box, pauses):
        if deed == "ask":
            token = await program.ask(box, pauses)
            await box.events()  # they are on disk then; those of the last milliseconds are lost with a killed process
            print(token, flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            return
        try:
            outcome = await program.resume(box, pauses, token)
            end = f"{outcome.status} {outcome.content}"
        except KeyError as refused:
            end = str(refused)
    print(end, flush=True)  # once every event is stored: whoever reads it may kill this process


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
