"""Programs end by themselves and well, however they leave: with everything closed, nothing closed, or in the middle."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import warm
from tests.adapters.servers import described, small_server
from tests.sources.mcp.programs import SERVERS

pytestmark = pytest.mark.programs
RUNS = 3  # at the same time, so that threads are slow to end; all but one in forks, which have imported everything

FILES = """
import sys
import pyarrow.parquet as pq
from toolpost.adapters import tools_table

pq.write_table(tools_table(sys.argv[1]), sys.argv[2])
print(pq.read_table(sys.argv[2]).num_rows)
"""
CLIENT = """
import sys
from toolpost import MCPClient

client = MCPClient(sys.argv[1]).__enter__()
print(client.call_tool("look"))
"""
INTERRUPTED = """
import signal, sys
from toolpost import MCPClient

signal.signal(signal.SIGALRM, lambda *_: sys.exit(3))
with MCPClient(sys.argv[1]) as client:
    print("waiting")
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    client.call_tool("wait")
"""
STUCK_CLIENT = """
import sys, threading
from toolpost import MCPClient

client = MCPClient(sys.argv[1]).__enter__()
threading.Thread(target=client.call_tool, args=["wait"], daemon=True).start()
print("waiting")
"""
BOX = """
import asyncio, sys, threading, time
from toolpost import Settings, Toolbox, tool

@tool(side_effects="pure")
def shout(text: str) -> str:
    return text.upper()

@tool(side_effects="pure")
def stay() -> str:
    began.set()
    threading.Event().wait()

async def main():
    box = await Toolbox(tools=[shout, stay], settings=Settings(data_dir=sys.argv[2], builtins="none")).__aenter__()
    await box.call("shout", {"text": "a"})
    LEAVE

async def leave_in_a_call(box):
    call = asyncio.create_task(box.call("stay", {}))
    await asyncio.to_thread(began.wait)

began = threading.Event()
print("began", flush=True)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def abacus() -> Iterator[str]:
    with warm.served(SERVERS / "abacus.py", "web") as url:
        yield f"{url}/mcp"


def run(program: str, address: str, place: Path) -> list[tuple[int, str, str]]:
    """Run a program several times at once; one that does not end fails the test."""
    script = place / "program.py"
    script.write_text(program)
    commands = [[sys.executable, str(script)]] + [warm.command(script)] * (RUNS - 1)
    running = [
        subprocess.Popen(
            [*command, address, str(place / str(number))],
            env={**os.environ, "PYTHONWARNINGS": "ignore", "WHOLE_END": "yes"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, command in enumerate(commands)
    ]
    try:
        said = [process.communicate(timeout=120) for process in running]
    finally:
        for process in running:
            process.kill()
    return [(process.returncode, out.strip(), err) for process, (out, err) in zip(running, said, strict=True)]


def test_a_program_that_fills_a_table_and_keeps_it_in_a_file_ends_well(abacus: str, tmp_path: Path) -> None:
    assert run(FILES, abacus, tmp_path) == [(0, "3", "")] * RUNS


@pytest.mark.parametrize(
    ("leave", "code"), [("", 0), ("sys.exit(3)", 3), ("raise RuntimeError('over')", 1)], ids=["end", "exit", "raise"]
)
def test_a_client_that_no_one_closed_does_not_hold_up_the_end(leave: str, code: int, tmp_path: Path) -> None:
    for ended, out, err in run(f"{CLIENT}\n{leave}\n", small_server(described("look")), tmp_path):
        assert (ended, out) == (code, "look got {}")
        assert ("over" in err) == ("over" in leave)


@pytest.mark.parametrize(("leave", "code"), [("", 0), ("sys.exit(3)", 3)], ids=["end", "exit"])
def test_a_program_ends_while_a_call_waits_for_its_server(leave: str, code: int, tmp_path: Path) -> None:
    for ended, out, _ in run(f"{STUCK_CLIENT}\n{leave}\n", small_server(described("wait")), tmp_path):
        assert (ended, out) == (code, "waiting")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
def test_a_program_that_exits_in_the_middle_of_a_call_ends_well(tmp_path: Path) -> None:
    assert run(INTERRUPTED, small_server(described("wait")), tmp_path) == [(3, "waiting", "")] * RUNS


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("raise RuntimeError('over')", 1),
        ("await leave_in_a_call(box)", 0),
        ("await leave_in_a_call(box); sys.exit(3)", 3),
    ],
    ids=["end", "exit", "raise", "in a call", "exit in a call"],
)
def test_a_box_that_no_one_closed_does_not_hold_up_the_end(leave: str, code: int, tmp_path: Path) -> None:
    for ended, out, err in run(BOX.replace("LEAVE", leave), "", tmp_path):
        assert (ended, out) == (code, "began"), err
        assert ("over" in err) == ("over" in leave)
