"""How the tests run the program: within this process, or as a child."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests import warm
from tests.parts import MEASURED

SRC = Path(__file__).parents[2] / "src"
MAIN = SRC / "toolpost" / "__main__.py"


class Done(NamedTuple):
    """What one run of the program left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


def command(*arguments: str) -> list[str]:
    """The program as people start it; for tests of how it starts and ends, and for one of each command."""
    return [sys.executable, "-m", "toolpost", *arguments]


def warm_command(*arguments: str) -> list[str]:
    """The program in a process of its own that need not import it first. No signal reaches it; see `warm.Fork`."""
    return warm.command(MAIN, *arguments)


def child_environment(**more: str) -> dict[str, str]:
    return {**os.environ, **child_variables(**more)}


def child_variables(**more: str) -> dict[str, str]:
    """What a child has in its environment that this process has not."""
    return {**MEASURED, "PYTHONPATH": str(SRC), **more}
