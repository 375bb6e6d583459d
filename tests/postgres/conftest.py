"""A database that is empty at the beginning of each test."""

import psycopg
import pytest

from tests.postgres.server import PostgreSQL


@pytest.fixture
def url(postgres: PostgreSQL) -> str:
    """Where the database is; nothing is in it, not even the extension."""
    with psycopg.connect(postgres.url(), autocommit=True, options="-c lock_timeout=20s") as connection:
        connection.execute("DROP SCHEMA IF EXISTS my CASCADE")
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
    return postgres.url()
