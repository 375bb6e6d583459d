"""A terminal of its own for the program, at which a test reads and types."""

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.cli.program import MAIN, Done, child_variables
from tests.warm import Fork

COLD = Path(__file__).with_name("cold.py")


def at_a_terminal(
    home: Path,
    typed: Mapping[str, bytes | Callable[[str], bytes]],
    *arguments: str,
    columns: int = 0,
    cold: bool = False,
) -> Done:
    """Run the program and type each answer once its question is there; `columns` is how wide the terminal is.

    An answer may be a function of what is shown so far. A `cold` program imports what it needs by itself.
    """
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = Fork(
        COLD if cold else MAIN,
        *arguments,
        streams=(inner, inner, inner),
        variables=child_variables(TERM="xterm", COLUMNS="", LINES=""),  # the terminal says how wide it is
        folder=home,
        at_terminal=True,
    )
    os.close(inner)
    try:
        shown = b""
        for question, answer in typed.items():
            shown += _read_until(outer, question.encode())
            os.write(outer, answer(shown.decode(errors="replace")) if callable(answer) else answer)
        shown += _read_until(outer, None)
        return Done(process.wait(), shown.decode(errors="replace"), "")
    finally:
        process.kill()
        process.close()
        os.close(outer)


def _read_until(terminal: int, end: bytes | None) -> bytes:
    """What is shown up to a text, or until the program is gone."""
    shown, deadline = b"", time.monotonic() + 60
    while end is None or end not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError(shown.decode(errors="replace"))
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # Linux tells this way that the other end is closed.
            piece = b""
        if not piece:
            return shown
        shown += piece
    return shown
