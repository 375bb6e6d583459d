"""How the tests run the program: within this process, or as a child."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.parts import MEASURED

SRC = Path(__file__).parents[2] / "src"


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
    return [sys.executable, "-m", "toolpost", *arguments]


def child_environment(**more: str) -> dict[str, str]:
    return {**os.environ, **MEASURED, "PYTHONPATH": str(SRC), **more}
