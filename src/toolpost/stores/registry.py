"""Databases by name: the built-in stores, and those of plug-ins by entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.storage import Cipher, IdKind, Store
from toolpost.contracts.store_status import StoreInspection
from toolpost.stores.threads import DAEMON_THREADS, StoreThreads

STORES_GROUP = "toolpost.stores"  # the entry points of plug-ins, named as the schemes of their URLs
BUILT_IN = {
    "memory": "toolpost.stores.memory.store:MemoryBackend",
    "postgres": "toolpost.stores.postgres.store:PostgresBackend",
    "postgresql": "toolpost.stores.postgres.store:PostgresBackend",
    "sqlite": "toolpost.stores.sqlite.store:SQLiteBackend",
}


class _Extra(NamedTuple):
    """The extra of toolpost that a database needs, and the package that it brings."""

    name: str
    package: str


_EXTRAS: dict[str, _Extra] = dict.fromkeys(("postgres", "postgresql"), _Extra("postgres", "psycopg"))


class StoreOptions(NamedTuple):
    """The settings of a store.

    `database` is a name or a URL whose scheme is the name, `data_dir` the folder for files, and `event_queue` the limit
    of events that wait to be written. `make_cipher` creates the cipher of a folder, when data is encrypted. `threads`
    run the work that blocks. `artifacts` is the bucket for contents of artifacts; without one they are in `data_dir`.
    """

    database: str
    data_dir: Path | None
    make_cipher: Callable[[Path], Cipher]
    event_queue: int = 50_000
    clock: Clock = SYSTEM_CLOCK
    threads: StoreThreads = DAEMON_THREADS
    artifacts: str | None = None


class StoreCheck(NamedTuple):
    """A finding of `toolpost doctor` about a database."""

    status: Literal["ok", "note", "broken"]
    text: str


class StoreBackend(Protocol):
    """A kind of database."""

    async def open(self, options: StoreOptions) -> Store:
        """Open a store; StoreError or ConfigError contains the reason and the remedy."""
        ...

    def find_ids(self, options: StoreOptions, kind: IdKind, prefix: str, *, tenant: str, limit: int) -> list[str]:
        """Return the result of `Store.find_ids` without opening the store, for a shell; [] if it cannot be read."""
        ...

    def check(self, options: StoreOptions) -> Iterator[StoreCheck]:
        """Check a database without changing it."""
        ...

    def inspect(self, options: StoreOptions) -> StoreInspection | None:
        """Read the status without opening the store, changing it or recovering calls; None without a store."""
        ...


def database_of(database: str | None, data_dir: Path | None) -> str:
    """Return the setting `database`, or its default: SQLite in the data folder, memory without a folder."""
    return database or ("memory" if data_dir is None else "sqlite")


def find_backend(database: str) -> StoreBackend:
    """Return the backend of a database; ConfigError lists the available ones."""
    name = database.partition(":")[0]
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        try:
            return cast("StoreBackend", getattr(import_module(module), attribute)())
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get(name)
            if extra is None or error.name != extra.package:
                raise
            install = f"pip install 'toolpost[{extra.name}]'"
            raise ConfigError(f"database: {name} needs the package {extra.package}; run: {install}") from error
    plugged = {point.name: point for point in entry_points(group=STORES_GROUP)}
    if name not in plugged:
        # The name alone: a URL may contain a password.
        have = ", ".join(sorted({*BUILT_IN, *plugged}))
        message = f"database: there is no store {name!r}; there are: {have}"
        raise ConfigError(f"{message}. Plug-ins add others by the entry point group {STORES_GROUP}")
    try:
        offered: Any = plugged[name].load()
    except Exception as error:
        raise ConfigError(
            f"database: the plug-in of {name!r} does not load: {type(error).__name__}: {error}"
        ) from error
    return cast("StoreBackend", offered() if isinstance(offered, type) else offered)
