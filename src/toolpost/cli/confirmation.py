"""A person's yes, before something is written that will start programs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager

from toolpost.contracts.errors import ToolError


def confirm(question: str, *, yes: bool) -> bool:
    """Ask at the terminal; `yes` was said before, and without a terminal nobody can be asked."""
    if yes:
        return True
    if not at_a_terminal():
        raise ToolError(
            f"a person has to agree, and there is no terminal to ask at: {question} Add --yes to agree",
            code="confirmation_needed",
        )
    with _interruptible():
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
    return answer.strip().lower() in ("y", "yes")


def at_a_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


@contextmanager
def _interruptible() -> Generator[None]:
    """The loop's own handler would only note the first interrupt, and reading would go on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
