"""Several processes that open an empty PostgreSQL database at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.postgres.databases import drop_database, new_database
from tests.postgres.server import PostgreSQL
from toolpost.stores.postgres.database import Database, migrate, read_version

pytestmark = pytest.mark.programs
PROCESSES = 4


def test_one_process_migrates_and_the_others_wait_for_it(postgres: PostgreSQL) -> None:
    url = new_database(postgres, migrated=False)
    barrier = threading.Barrier(PROCESSES)

    def open_and_migrate(_: int) -> int:
        with Database(url).connect("check") as db:
            assert read_version(db) == 0
            barrier.wait()
            migrate(db, "the database of this test")
            return read_version(db)

    with ThreadPoolExecutor(PROCESSES) as threads:
        versions = set(threads.map(open_and_migrate, range(PROCESSES)))
    drop_database(postgres, url)

    assert len(versions) == 1
    assert versions != {0}
