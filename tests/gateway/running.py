"""`toolpost up` and `toolpost serve` as programs of their own, on a home folder with tools in a file."""

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from tests.cli.program import MAIN, child_environment, child_variables, command, warm_command
from tests.warm import Program

CONFIG = "builtins: [data_tools]\nsources:\n  - {name: local, transport: python, connection: ./tools.py}\n"
TOOLS = '''
import asyncio
import time
from pathlib import Path

from pydantic import BaseModel
from toolpost import ToolContext, tool

HERE = Path(__file__).parent

class Line(BaseModel):
    product: str
    amount: int = 1

class Order(BaseModel):
    lines: list[Line]
    note: str | None = None

@tool(side_effects="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    print("careless authors print")
    return a + b

@tool(side_effects="pure")
def total(order: Order) -> Order:
    """Return an order with what was left out."""
    return order

@tool(side_effects="pure")
def fail() -> str:
    """Fail."""
    raise ValueError("no luck today")

@tool(side_effects="write", destructive=True)
def drop(name: str) -> str:
    """Drop a table, and say so in a file."""
    with (HERE / "dropped").open("a") as file:
        print(name, file=file)
    return f"{name} is gone"

@tool(side_effects="pure")
async def book(ctx: ToolContext) -> str:
    """Book a table for as many as a person says."""
    guests = await ctx.pause("guests", {"prompt": "How many guests?"})
    with (HERE / "booked").open("a") as file:
        print(guests, file=file)
    return f"a table for {guests}"

@tool(side_effects="pure")
def nap() -> str:
    """Sleep, and say when that begins."""
    (HERE / "begun").touch()
    time.sleep(1)
    return "rested"

@tool(side_effects="pure")
async def hang() -> str:
    """Wait for ever, and say when that begins and when it is cancelled."""
    (HERE / "hanging").touch()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        (HERE / "cancelled").touch()
        raise
    return "never"
'''


class Gateway(NamedTuple):
    """A running `toolpost up`: where it is, what its callers show, and its process."""

    address: str
    token: str
    process: Program | subprocess.Popen[str]

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


def furnish(home: Path, *, config: str = CONFIG) -> Path:
    """Write a configuration and its tools into a folder."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "toolpost.yaml").write_text(config)
    (home / "tools.py").write_text(TOOLS)
    return home


@contextmanager
def running(
    home: Path,
    *options: str,
    stopping: bool = False,
    stderr: IO[str] | None = None,
    warm: bool = True,
    program: Sequence[str] | None = None,
) -> Iterator[Gateway]:
    """Start `toolpost up` on a free port; it is stopped in the end unless that is what the test does.

    It is `warm` where the test is not about how a process starts and ends. A `program` in its place does the same, and
    something for the test besides.
    """
    words = ("up", "--port", "0", "--json", *options)
    process: Program | subprocess.Popen[str]
    if warm and program is None:
        process = Program(MAIN, *words, folder=home, stderr=stderr, variables=child_variables())
    else:
        process = subprocess.Popen(
            program or command(*words),
            cwd=home,
            env=child_environment(),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    with process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            yield Gateway(told["mcp"], Path(told["token_file"]).read_text(), process)
        except BaseException:
            process.kill()
            raise
        if not stopping:
            process.send_signal(signal.SIGTERM)


def serving(home: Path) -> list[str]:
    """Return the command of `toolpost serve` for a client that starts it wherever it likes."""
    return warm_command("serve", "--config", str(home / "toolpost.yaml"))
