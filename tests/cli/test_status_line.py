"""The line that tells what is going on while a command works."""

import sys
from pathlib import Path

import pytest

from tests.cli.program import Run
from tests.cli.terminal import at_a_terminal

pytestmark = pytest.mark.programs

SERVER = Path(__file__).with_name("small_server.py")
SLOW = '''
from toolpost import ToolContext, tool


@tool(side_effects="pure")
async def count(to: int, ctx: ToolContext) -> str:
    """Count, and say how far."""
    for step in range(1, to + 1):
        ctx.progress(f"step {step}\\x1b[2J of {to} " + "and on " * step * 20, fraction=step / to)
    return "counted"


@tool(side_effects="pure")
def tail(lines: int):
    """Follow a log."""
    for number in range(lines):
        yield f"line {number}\\x1b[2J"
'''
ERASE = "\r\x1b[K"
SHOWN = ["slow.count 50%: step 1", "slow.count 100%: step 2"]
CALL = ("tools", "call", "slow.count", "--args", '{"to": 2}')


def _with_slow_tool(home: Path) -> Path:
    (home / "slow.py").write_text(SLOW)
    (home / "toolpost.yaml").write_text(
        "builtins: none\nsources:\n  - {name: slow, transport: python, connection: ./slow.py}\n"
    )
    return home


def test_progress_of_a_call_is_one_line_at_a_terminal_and_gone_before_the_answer(home: Path) -> None:
    done = at_a_terminal(_with_slow_tool(home), {}, *CALL, columns=60)

    lines = [line for line in done.out.split(ERASE) if line.startswith("slow.count")]
    assert done.code == 0
    assert [line.partition("\N{REPLACEMENT CHARACTER}")[0] for line in lines] == SHOWN
    assert [line for line in lines if len(line) >= 60 or "\n" in line or "\x1b" in line] == []
    assert f"{ERASE}counted" in done.out


def test_values_of_a_stream_stay_at_a_terminal_and_the_last_is_the_answer(home: Path) -> None:
    done = at_a_terminal(_with_slow_tool(home), {}, "tools", "call", "slow.tail", "lines=2")

    seen = [line.strip() for line in done.out.replace(ERASE, "\n").splitlines() if line.startswith("line")]
    assert [line[:6] for line in seen] == ["line 0", "line 1", "line 1"]
    assert "\x1b" not in "".join(seen[:2])


def test_without_a_terminal_progress_is_not_shown(child: Run, home: Path) -> None:
    _with_slow_tool(home)

    done = child(*CALL)

    assert done.out == "counted\n"
    assert "step" not in done.err
    assert "\x1b" not in done.err


@pytest.mark.waits
def test_a_slow_start_shows_what_is_waited_for_and_for_how_long(home: Path) -> None:
    (home / "slow_server.py").write_text(
        f"import runpy, time\nfrom pathlib import Path\nwhile not Path({str(home / 'go')!r}).exists():\n"
        f"    time.sleep(0.05)\nrunpy.run_path({str(SERVER)!r}, run_name='__main__')\n"
    )
    command = f"{sys.executable} {home / 'slow_server.py'}"
    (home / "toolpost.yaml").write_text(
        f"builtins: none\nsources:\n  - {{name: slow, transport: mcp, connection: '{command}'}}\n"
    )

    def go(_shown: str) -> bytes:
        (home / "go").touch()
        return b""

    program = Path(sys.executable).name
    done = at_a_terminal(home, {f"starting slow ({program})... 1 s": go}, "tools", "list")

    assert done.code == 0
    assert "slow.greet" in done.out
