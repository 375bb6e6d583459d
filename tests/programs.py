"""Which tests start other programs: those that are marked so, and no others."""

import sys
from pathlib import Path
from typing import Any

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
WATCHED = frozenset({*STARTS, "socket.connect"})
WARM = "\0toolpost-warm"  # tests.warm listens there, and starts a program for each who connects
LOOKING = {"cc", "gcc", "ld", "ldconfig", "objdump"}  # by which ctypes looks for a library when a package is imported
UNMARKED = "This test starts a program. Mark it, so that `make quick` leaves it out: @pytest.mark.programs"


class Watch:
    """Notes every program that this process starts, whoever starts it, a fixture or the code under test."""

    def __init__(self) -> None:
        self._started = False
        sys.addaudithook(self._note)

    def take(self) -> bool:
        """Whether a program was started since the last time."""
        started, self._started = self._started, False
        return started

    def _note(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in WATCHED:  # as good as all: each id() is an event, too
            return
        if event == "subprocess.Popen" and Path(str(args[0])).name in LOOKING:
            return
        if event in STARTS or (event == "socket.connect" and isinstance(args[1], str) and args[1].startswith(WARM)):
            self._started = True
