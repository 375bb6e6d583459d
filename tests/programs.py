"""Which tests start other programs: those that are marked so, and no others."""

import os
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from pathlib import Path
from typing import Any

from coverage import inorout

LOOKING = {"cc", "gcc", "ld", "ldconfig", "objdump"}  # by which ctypes looks for a library when a package is imported
UNMARKED = "This test starts a program. Mark it, so that `make quick` leaves it out: @pytest.mark.programs"


class Watch:
    """Notes every program that this process starts, whoever starts it, a fixture or the code under test.

    By functions that stand for those of the standard library. An audit hook would see as much, but it is also called
    for the trace function of each thread, by which coverage is measured: where another thread begins meanwhile, that
    one ends before it has done anything (CPython 3.11), and whoever waits for it waits for ever.
    """

    def __init__(self) -> None:
        self._started = False

    def begin(self) -> None:
        for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"):
            setattr(os, name, self._noted(getattr(os, name)))
        subprocess.Popen.__init__ = self._noted(subprocess.Popen.__init__, _is_program)  # type: ignore[method-assign]

    def take(self) -> bool:
        """Whether a program was started since the last time."""
        started, self._started = self._started, False
        return started

    def note(self) -> None:
        self._started = True

    def _noted(self, start: Callable[..., Any], counts: Callable[..., bool] = lambda *_, **__: True) -> Any:
        @wraps(start)
        def noting(*args: Any, **named: Any) -> Any:
            if counts(*args, **named):
                self.note()
            return start(*args, **named)

        return noting


def _is_program(_: object, args: Any, *__: object, **___: object) -> bool:
    program = args if isinstance(args, str | bytes | os.PathLike) else args[0]
    return Path(os.fsdecode(program)).name not in LOOKING


WATCH = Watch()


def keep_modules() -> None:
    """Let coverage keep what other threads import.

    Whenever `sys.path` changes, it drops every module that appeared while it imported the packages that it measures.
    Here it measures a folder and imports none.
    """
    vars(inorout)["sys_modules_saved"] = nullcontext
