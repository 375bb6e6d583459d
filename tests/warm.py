"""Programs that start at once: one process imports what they need, and runs each of them in a fork of its own.

Importing an SDK, or Toolpost itself, takes a second and more, and a test that starts a program is seldom about that.
`python -m tests.warm PLACE` is the process; it ends with its stdin.
"""

import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn, Self

from coverage import process_startup

from tests.programs import WATCH, keep_modules
from tests.stand_in import ask
from toolpost import Settings, cli

ROOT = Path(__file__).parents[1]
STAND_IN = Path(__file__).with_name("stand_in.py")
LIBRARIES = (
    "anyio._backends._asyncio",
    "conformance.person",
    "fastmcp.server.context",
    "fastmcp.server.http",
    "fastmcp.server.middleware",
    "fastmcp.server.server",
    "fastmcp.utilities.cli",
    "griffe",
    "joserfc.jwk",
    "joserfc.jwt",
    "mcp.server.subscriptions",
    "pytest",
    "toolpost.auth.oauth.grants",
    "toolpost.auth.keys",
    "toolpost.builtin.loader",
    "toolpost.gateway.http",
    "toolpost.gateway.mcp.server",
    "toolpost.gateway.rest.openapi",
    "toolpost.gateway.view_servers",
    "toolpost.schema.signature",
    "toolpost.sources.mcp.source",
    "toolpost.sources.openapi.source",
    "toolpost.sources.python",
    "toolpost.stores.sqlite.store",
    "toolpost.toolbox.accounts",
    "toolpost.toolbox.config_follower",
    "toolpost.toolbox.wiring",
    "toolpost.wire.http1",
    "toolpost.wire.http_server",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.h11_impl",
    "uvicorn.protocols.http.httptools_impl",
)


# ---------------------------------------------------------------- in a test


class Fork:
    """A program that runs on streams of the test."""

    def __init__(
        self,
        program: Path,
        *arguments: str,
        streams: tuple[int, int, int],
        variables: Mapping[str, str],
        folder: Path = ROOT,
        at_terminal: bool = False,
    ) -> None:
        order = {
            "arguments": [str(program), *arguments],
            "environment": {**os.environ, **variables},
            "folder": str(folder),
            "at_terminal": at_terminal,
        }
        WATCH.note()
        self._asking = ask(place(), order, streams)
        self._told = self._asking.makefile("rb", buffering=0)  # `poll` asks the socket whether there is more
        self.pid = int(self._told.readline())
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it without a warning, and wait until it is gone."""
        if self.returncode is None:
            self._asking.shutdown(socket.SHUT_WR)
            self.wait()

    def poll(self) -> int | None:
        """How it ended, if it has."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> int:
        """How it ended; the negative number of a signal that killed it."""
        if self.returncode is None:
            self.returncode = int(self._told.readline())
        return self.returncode

    def close(self) -> None:
        self._told.close()
        self._asking.close()


class Program(Fork):
    """A program that runs, with its input and its output."""

    def __init__(
        self,
        program: Path,
        *arguments: str,
        variables: Mapping[str, str] | None = None,
        folder: Path = ROOT,
        stderr: IO[str] | None = None,
    ) -> None:
        (theirs, given), (heard, said) = os.pipe(), os.pipe()
        streams = (theirs, said, 2 if stderr is None else stderr.fileno())
        super().__init__(program, *arguments, streams=streams, variables=variables or {}, folder=folder)
        os.close(theirs)
        os.close(said)
        self.stdin, self.stdout = os.fdopen(given, "w"), os.fdopen(heard)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.stdin.close()
        if kind is not None:
            self.kill()
        self.wait()
        self.stdout.close()
        self.close()


def command(program: Path, *arguments: str) -> list[str]:
    """The command of a program that somebody else starts; with the variable WHOLE_END it takes its modules down."""
    return [sys.executable, "-I", "-S", str(STAND_IN), place(), str(program), *arguments]


@contextmanager
def served(program: Path, *arguments: str, **variables: str) -> Iterator[str]:
    """A server that runs until nobody needs it; yields the first line that it prints."""
    with Program(program, *arguments, variables=variables) as server:
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


@cache
def place() -> str:
    """Where the process of this test run listens; it is started once."""
    name = f"toolpost-warm-{os.getpid()}"
    command = [sys.executable, "-m", "tests.warm", name]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(process.communicate)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return name


# ---------------------------------------------------------------- in the process


class Leaving:
    """The end of a process whose modules nobody has to take down one by one."""

    code: int = 1  # of a program that raised something

    def __call__(self) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self.code)


leaving = Leaving()


def serve(name: str) -> None:
    """Run programs until stdin ends."""
    atexit.register(leaving)  # whoever registers later is called before
    commands = (module.name for module in pkgutil.iter_modules(cli.__path__, "toolpost.cli."))
    for library in (*LIBRARIES, *commands):
        importlib.import_module(library)
    Settings(sources=[{"name": "any", "transport": "python", "connection": "any.py"}])  # which compiles the models
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who look after a program
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{name}")
        listening.listen(64)
        print("ready", flush=True)
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            asked, _ = listening.accept()
            if not os.fork():
                listening.close()
                look_after(asked)
            asked.close()
    leaving.code = 0


def look_after(asked: socket.socket) -> NoReturn:
    """Run a program, and end it when nobody wants it any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    order, streams = received(asked)
    program = os.fork()
    if not program:
        asked.close()
        become(order, streams)
    for stream in (0, 1, *streams):
        os.close(stream)
    asked.send(f"{program}\n".encode(), socket.MSG_NOSIGNAL)
    ending = os.pidfd_open(program)
    if ending not in select.select([asked.fileno(), ending], [], [])[0]:
        os.kill(program, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    try:
        asked.send(f"{code}\n".encode(), socket.MSG_NOSIGNAL)
    finally:
        os._exit(0)


def received(asked: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, streams, _, _ = socket.recv_fds(asked, 4, 3)
    text = b""
    while len(text) < int.from_bytes(head, "big"):
        text += asked.recv(1 << 16)
    return json.loads(text), streams


def become(order: dict[str, Any], streams: Sequence[int]) -> NoReturn:
    """Be the program, as if it had just been started."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if order["at_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # an interrupt key reaches it
        assert isinstance(sys.stdout, io.TextIOWrapper)
        sys.stdout.reconfigure(line_buffering=True)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.argv[:] = order["arguments"]
    if os.environ.pop("WHOLE_END", ""):
        atexit.unregister(leaving)
    keep_modules()
    process_startup()  # coverage, where the environment asks for it
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit()
    except SystemExit as exiting:
        leaving.code = exiting.code if isinstance(exiting.code, int) else int(exiting.code is not None)
        raise


if __name__ == "__main__":
    serve(sys.argv[1])
