"""A database of its own for each test, copied from one that was migrated once."""

import itertools
from collections.abc import Generator
from contextlib import contextmanager

import psycopg
from psycopg.sql import SQL, Identifier

from tests.postgres.server import PostgreSQL
from toolpost.stores.postgres.database import Database, migrate

_TEMPLATE = "toolpost_template"
_numbers = itertools.count()
_made: set[PostgreSQL] = set()


def new_database(server: PostgreSQL, *, migrated: bool = True) -> str:
    """The URL of a database with empty tables, or without any."""
    name = f"toolpost_{next(_numbers)}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        if migrated and server not in _made:
            connection.execute(f"CREATE DATABASE {_TEMPLATE}")
            database = Database(server.url(database=_TEMPLATE))
            with database.connect("check") as template:
                migrate(template, database.place)
            _made.add(server)
        template_name = _TEMPLATE if migrated else "template0"
        copy = SQL("CREATE DATABASE {} TEMPLATE {}")
        connection.execute(copy.format(Identifier(name), Identifier(template_name)))
    return server.url(database=name)


@contextmanager
def temporary_database(server: PostgreSQL) -> Generator[str]:
    """A new database, which is dropped at the end."""
    url = new_database(server)
    try:
        yield url
    finally:
        drop_database(server, url)


def drop_database(server: PostgreSQL, url: str) -> None:
    name = url.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))
