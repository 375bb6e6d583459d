"""What tests share because they run in one process: the test that leaves it changed is the one that fails."""

import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class LoggerState(NamedTuple):
    """How a logger is configured."""

    level: int
    propagate: bool
    disabled: bool
    handlers: tuple[logging.Handler, ...]


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM, signal.SIGPIPE)
UNTOUCHED = LoggerState(logging.NOTSET, propagate=True, disabled=False, handlers=())


class ProcessState:
    """A copy of what one test could leave changed for the next, in the same worker."""

    def __init__(self) -> None:
        self._folder = _folder()
        self._environment = _environment()
        self._loggers = _loggers()
        self._search_path = list(sys.path)
        self._others = {name: read() for name, (read, _) in OTHERS.items()}

    def restore(self) -> list[str]:
        """Undo what has changed since, and say what it was."""
        sys.path[:] = self._search_path  # without a word: a source adds the folder of its file, and keeps it
        return [
            *self._restore_folder(),
            *self._restore_environment(),
            *self._restore_loggers(),
            *self._restore_others(),
        ]

    def _restore_folder(self) -> Iterator[str]:
        if (folder := _folder()) != self._folder:
            os.chdir(self._folder)
            yield f"the working directory is {folder}"

    def _restore_environment(self) -> Iterator[str]:
        # Names only: a value may be a secret of whoever runs the tests.
        before, now = self._environment, _environment()
        for name in sorted(now.keys() - before.keys()):
            del os.environ[name]
            yield f"the environment variable {name} is set"
        for name in sorted(name for name in before if now.get(name) != before[name]):
            os.environ[name] = before[name]
            yield f"the environment variable {name} is {'changed' if name in now else 'gone'}"

    def _restore_loggers(self) -> Iterator[str]:
        for name, now in _loggers().items():
            before = self._loggers.get(name, UNTOUCHED)
            if now != before:
                logger = logging.getLogger(name)
                logger.setLevel(before.level)
                logger.propagate, logger.disabled, logger.handlers[:] = before[1:]
                yield f"the logger {name!r} is {now}, it was {before}"

    def _restore_others(self) -> Iterator[str]:
        for name, before in self._others.items():
            read, write = OTHERS[name]
            if (now := read()) != before:
                write(before)
                yield f"{name} is {now!r}, it was {before!r}"


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return "one that is gone"


def _environment() -> dict[str, str]:
    found = dict(os.environ)
    found.pop("PYTEST_CURRENT_TEST", None)  # written by pytest around each phase of a test
    return found


def _loggers() -> dict[str, LoggerState]:
    """Ours and the root; libraries configure their own when they are imported or first used."""
    made = logging.root.manager.loggerDict.items()
    ours = {name: one for name, one in made if name.startswith("toolpost") and isinstance(one, logging.Logger)}
    return {
        name: LoggerState(logger.level, logger.propagate, logger.disabled, tuple(logger.handlers))
        for name, logger in {"root": logging.root, **ours}.items()
    }


def _change_signals(handlers: tuple[Any, ...]) -> None:
    for number, handler in zip(SIGNALS, handlers, strict=True):
        signal.signal(number, handler)


OTHERS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "the handlers of signals": (lambda: tuple(map(signal.getsignal, SIGNALS)), _change_signals),
    "logging.disable": (lambda: logging.root.manager.disable, logging.disable),
    "the profiler": (sys.getprofile, sys.setprofile),
    "the recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    "the garbage collector": (gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable()),
    "the time zone": (lambda: time.tzname, lambda _: time.tzset()),
}
