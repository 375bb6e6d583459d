"""One server for all tests of a worker; each test finds it empty."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.parts import PartMissingError
from tests.postgres.server import NotStartedError, PostgreSQL, running


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgreSQL]:
    try:
        with running() as server:
            yield server
    except PartMissingError as missing:
        pytest.skip(f"NOT TESTED against a real PostgreSQL: {missing}")
    except NotStartedError as refused:
        pytest.skip(f"NOT TESTED against a real PostgreSQL, which cannot start here: {refused}")


@pytest.fixture
def url(postgres: PostgreSQL) -> str:
    """Where the database is; nothing is in it, not even the extension."""
    with psycopg.connect(postgres.url(), autocommit=True, options="-c lock_timeout=20s") as connection:
        connection.execute("DROP SCHEMA IF EXISTS my CASCADE")
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
    return postgres.url()
