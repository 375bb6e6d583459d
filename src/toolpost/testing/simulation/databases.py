"""A PostgreSQL database for one simulated world, whose time is that of the world."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from psycopg.sql import SQL, Identifier

from toolpost.contracts.storage import Cipher
from toolpost.stores.registry import StoreOptions
from toolpost.stores.transfer import find_portable

_RESOLUTION_S = 0.25
_REPLACE_NOW = """
CREATE UNLOGGED TABLE toolpost.simulated_time (now double precision NOT NULL);
INSERT INTO toolpost.simulated_time VALUES (0);
CREATE OR REPLACE FUNCTION toolpost.now() RETURNS double precision LANGUAGE sql VOLATILE
    AS $$ SELECT now FROM toolpost.simulated_time $$;
"""


class WorldDatabase(NamedTuple):
    """The URL of a database, and the function that sets the time by which its leases end."""

    url: str
    set_time: Callable[[float], None]


@contextmanager
def new_database(url: str) -> Generator[WorldDatabase]:
    """Create a database on the server of a URL, and drop it at the end; the user needs the right to create some."""
    name = f"toolpost_simulation_{uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        try:
            own_url = urlsplit(url)._replace(path=f"/{name}").geturl()
            options = StoreOptions(own_url, None, _make_no_cipher)
            find_portable(options).migrate(options)
            with psycopg.connect(own_url, autocommit=True) as db:
                db.execute(_REPLACE_NOW)
                yield WorldDatabase(own_url, DatabaseTime(db).set)
        finally:
            server.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


class DatabaseTime:
    """Writes the time of a world into its database, unless it has moved by less than leases notice."""

    def __init__(self, db: psycopg.Connection[Any]) -> None:
        self._db = db
        self._written = 0.0

    def set(self, now: float) -> None:
        """Set the time."""
        if now - self._written >= _RESOLUTION_S:
            self._db.execute("UPDATE toolpost.simulated_time SET now = %s", (now,))
            self._written = now


def _make_no_cipher(_: Path) -> Cipher:
    raise AssertionError("a migration encrypts nothing")
