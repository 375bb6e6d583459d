"""What `toolpost doctor` looks at, one function for each; looking changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from toolpost import __version__
from toolpost.processes.sandbox import sandbox_report
from toolpost.transports.plugins import load_plugins

State = Literal["ok", "note", "broken"]

OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 35)  # UPDATE ... RETURNING, which makes a claim one statement
_LOW_SPACE = 256 * 1024 * 1024
_FEW_FILES = 256


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    state: State
    detail: str

    def to_dict(self) -> dict[str, Any]:
        """The check as plain data."""
        return self._asdict()


def machine() -> Iterator[Check]:
    """What does not depend on any configuration."""
    yield Check("toolpost", "ok", __version__)
    yield _at_least("python", sys.version_info[:3], OLDEST_PYTHON)
    yield _at_least("sqlite", sqlite3.sqlite_version_info, OLDEST_SQLITE)
    yield _platform()
    yield _processes()
    yield from _open_files()
    yield from _plugins()


def data_folder(folder: Path | None) -> Iterator[Check]:
    """The folder that everything is kept in, and what lies in it."""
    if folder is None:
        yield Check("data folder", "note", "none: everything is kept in memory and lost at the end")
        return
    if not folder.exists():
        yield _creatable(folder)
        return
    yield _writable(folder)
    yield _space(folder)
    yield from _database(folder)
    yield from _keys(folder)


def _at_least(name: str, version: tuple[int, ...], oldest: tuple[int, ...]) -> Check:
    written = ".".join(map(str, version))
    if version < oldest:
        return Check(name, "broken", f"{written}; {'.'.join(map(str, oldest))} or newer is needed")
    return Check(name, "ok", written)


def _platform() -> Check:
    name = f"{platform.system()} {platform.release()} ({platform.machine()})"
    if platform.system() == "Linux":
        return Check("platform", "ok", name)
    return Check("platform", "note", f"{name}: there are no sandboxes")


def _processes() -> Check:
    """Whether what sources start can outlive this program."""
    found = sandbox_report()
    whole = found.subreaper and found.parent_death_signal
    return Check("processes", "ok" if whole else "note", found.summary)


def _open_files() -> Iterator[Check]:
    try:
        import resource
    except ImportError:  # Windows has no such limit to ask for.
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FEW_FILES:
        yield Check("open files", "note", f"at most {soft}; raise it with `ulimit -n 1024`")
    else:
        yield Check("open files", "ok", "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft}")


def _plugins() -> Iterator[Check]:
    found = load_plugins()
    sources = ", ".join(found.transports) or "none"
    yield Check("plug-ins", "ok", f"{len(found.tools)} tools; sources: {sources}")
    yield from (Check("plug-in", "broken", problem) for problem in found.problems)


def _creatable(folder: Path) -> Check:
    nearest = next(parent for parent in folder.parents if parent.exists())
    if nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK):
        return Check("data folder", "ok", f"{folder}: made at the first call")
    return Check("data folder", "broken", f"{folder} cannot be made: {nearest} is not a folder you may write to")


def _writable(folder: Path) -> Check:
    if not folder.is_dir():
        return Check("data folder", "broken", f"{folder} is not a folder; set data_dir to another one")
    told = f"{folder} (mode {_mode(folder):04o})"
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check("data folder", "broken", f"{told} is read-only; give this user write permission or set data_dir")
    if _mode(folder) & 0o077:
        return Check("data folder", "note", f"{told}: others on this machine can look in; chmod 700 keeps it private")
    return Check("data folder", "ok", told)


def _space(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    state: State = "ok" if free >= _LOW_SPACE else "note"
    return Check("free space", state, f"{free // (1024 * 1024)} MB")


def _database(folder: Path) -> Iterator[Check]:
    from toolpost.stores.database import MIGRATIONS, open_readable
    from toolpost.stores.sqlite import DATABASE

    path = folder / DATABASE
    if not path.exists():
        yield Check("database", "ok", "not made yet")
        return
    try:
        db = open_readable(path, busy_s=1.0)
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        db.close()
    except sqlite3.Error as error:
        yield Check("database", "broken", f"{path}: {error}")
        return
    newest = len(list(MIGRATIONS.glob("*.sql")))
    if version > newest:
        yield Check("database", "broken", f"version {version}, newer than this toolpost knows ({newest}); upgrade it")
    else:
        yield Check("database", "ok", f"version {version} of {newest}, {path.stat().st_size // 1024} KB")


def _keys(folder: Path) -> Iterator[Check]:
    from toolpost.auth.keys import KEY_FILE

    key = folder / KEY_FILE
    if not key.exists():
        yield Check("key file", "ok", "not made yet")
    elif _mode(key) & 0o077:
        yield Check("key file", "broken", f"{key} has mode {_mode(key):04o}; others can read it: chmod 600 {key}")
    else:
        yield Check("key file", "ok", f"{key} (mode {_mode(key):04o})")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
