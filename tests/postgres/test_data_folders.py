"""Data of every schema version is migrated in PostgreSQL, and read completely."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.postgres.databases import drop_database, new_database
from tests.postgres.server import PostgreSQL
from tests.stores.data_folders import content
from tests.stores.places import Kept
from tests.stores.test_data_folders import FOLDERS, NUMBERS
from toolpost.stores.transfer import copy_rows

pytestmark = pytest.mark.programs
COLUMNS = """
SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'toolpost'
ORDER BY table_name, ordinal_position
"""


@pytest.fixture
def url(postgres: PostgreSQL) -> Iterator[str]:
    """An empty database, without tables."""
    made = new_database(postgres, migrated=False)
    yield made
    drop_database(postgres, made)


@pytest.fixture
def migrated(request: pytest.FixtureRequest, tmp_path: Path, url: str) -> Kept:
    """A database that got the rows of a stored data folder at its version, and was migrated with them."""
    old, new = Kept(tmp_path / "old"), Kept(tmp_path / "new", url)
    for folder in (old.folder, new.folder):
        shutil.copytree(FOLDERS / request.param, folder)
        (folder / "key").chmod(0o600)
    (new.folder / "toolpost.db").unlink()
    with (
        old.place.backend.snapshot(old.options) as stored,
        new.place.backend.fill(new.options, schema=stored.schema) as empty,
    ):
        assert stored.schema == int(request.param)
        copy_rows(stored, empty)
        empty.write_log(stored.log, position=stored.log.last_event)
    return new


@pytest.mark.parametrize("migrated", NUMBERS, indirect=True)
async def test_migrated_data_is_read_completely(migrated: Kept) -> None:
    async with content.box(migrated.folder, migrated.settings.database) as box:
        await content.check_content(box.store)


@pytest.mark.parametrize("migrated", NUMBERS, indirect=True)
async def test_a_toolbox_continues_with_migrated_data(migrated: Kept) -> None:
    await content.check_continuation(migrated.folder, migrated.settings.database)


@pytest.mark.parametrize("migrated", NUMBERS, indirect=True)
def test_migrated_tables_are_those_of_a_new_database(migrated: Kept, postgres_url: str) -> None:
    found: list[list[tuple[str, ...]]] = []
    for address in (str(migrated.settings.database), postgres_url):
        with psycopg.connect(address) as db:
            found.append(db.execute(COLUMNS).fetchall())
    assert found[0] == found[1] != []
