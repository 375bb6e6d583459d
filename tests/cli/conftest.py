"""A folder with a configuration and tools, and two ways to run the program in it."""

import subprocess
from pathlib import Path

import pytest

from tests.cli.program import Done, Run, child_environment, warm_command
from toolpost.cli import main

CONFIG = """
sources:
  - {name: local, transport: python, connection: ./tools.py}
"""
TOOLS = '''
import asyncio
import os
from pathlib import Path

from toolpost import ToolContext, tool

WIPED = Path(__file__).with_name("wiped.txt")


@tool(side_effects="pure", tags=["math"])
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="write", destructive=True)
def wipe(name: str) -> str:
    """Wipe something for good."""
    with WIPED.open("a") as file:
        file.write(f"{name}\\n")
    return f"wiped {name}"


@tool(side_effects="write", destructive=True)
def sign_in(user: str, password: str) -> str:
    """Sign in, which must not be done lightly."""
    return f"{user} is in with {len(password)} characters"


@tool(side_effects="pure")
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "done"


@tool(side_effects="pure")
async def ask(ctx: ToolContext) -> str:
    """Ask a person for a colour."""
    return f"painted {await ctx.pause('colour', prompt='Which colour?')}"


@tool(side_effects="pure")
def noisy() -> str:
    """Print where a careless author would."""
    print("printed")
    os.system("echo echoed")
    return "quiet"


@tool(side_effects="pure")
def styled() -> str:
    """Return a text that would repaint a terminal."""
    return "\\x1b[2Jall \\u202egood"


@tool(side_effects="pure")
def large() -> str:
    """Return more than is handed on whole."""
    return "x" * 100_000
'''


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "toolpost.yaml").write_text(CONFIG)
    (tmp_path / "tools.py").write_text(TOOLS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def toolpost(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The program within this process: quick, for all that a process of its own adds nothing to."""

    def run(*arguments: str) -> Done:
        code = main(arguments)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


@pytest.fixture
def child(home: Path) -> Run:
    """The program in a process of its own, which has imported already what it needs."""

    def run(*arguments: str, given: str = "") -> Done:
        done = subprocess.run(
            warm_command(*arguments),
            cwd=home,
            env=child_environment(),
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run
