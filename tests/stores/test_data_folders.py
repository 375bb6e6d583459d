"""Data folders that earlier versions wrote open, and a new one has the same schema."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.stores.conftest import open_store
from tests.stores.data_folders import content
from toolpost.stores.sqlite.database import MIGRATIONS

FOLDERS = Path(content.__file__).parent
NUMBERS = sorted(path.name.split("_")[0] for path in MIGRATIONS.glob("*.sql"))


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the data folder that the version with this migration wrote."""
    copy = tmp_path / "data"
    shutil.copytree(FOLDERS / request.param, copy)
    (copy / "key").chmod(0o600)  # a checkout makes it readable for others
    return copy


def schema(path: Path) -> list[tuple[str, str]]:
    """The tables and indexes of a database, without comments."""
    with closing(sqlite3.connect(path)) as db:
        columns = "SELECT name, (SELECT json_group_array(name || ' ' || type) FROM pragma_table_info(outside.name))"
        return db.execute(f"{columns} FROM sqlite_master AS outside ORDER BY name").fetchall()


def test_every_migration_has_a_data_folder() -> None:
    stored = sorted(path.name for path in FOLDERS.iterdir() if path.name.isdigit())
    assert stored == NUMBERS, "write the missing folder with `python -m tests.stores.data_folders`, and commit it"


@pytest.mark.parametrize("folder", NUMBERS, indirect=True)
async def test_a_stored_data_folder_is_read_completely(folder: Path) -> None:
    async with open_store(folder) as store:
        await content.check_content(store)


@pytest.mark.parametrize("folder", NUMBERS, indirect=True)
async def test_a_toolbox_continues_with_a_stored_data_folder(folder: Path) -> None:
    await content.check_continuation(folder)


@pytest.mark.parametrize("folder", NUMBERS, indirect=True)
async def test_a_stored_data_folder_gets_the_schema_of_a_new_one(folder: Path, tmp_path: Path) -> None:
    for place in (folder, tmp_path / "new"):
        async with open_store(place):
            pass
    assert schema(folder / "toolpost.db") == schema(tmp_path / "new" / "toolpost.db")
