"""Backups, restores, moves and key rotation of stores whose contents are in object storage."""

import zipfile
from pathlib import Path

import pytest

from tests.objects.server import ObjectStorage
from tests.objects.stores import objects
from tests.stores.places import CONTENT, Kept, fill, read_everything
from toolpost import Principal, Settings
from toolpost.contracts.errors import StoreError
from toolpost.stores.backups import back_up
from toolpost.stores.moves import ConfiguredDatabase, move
from toolpost.stores.object_storage import Bucket
from toolpost.stores.transfer import find_portable
from toolpost.testing.stores.samples import artifact
from toolpost.toolbox.wiring import store_options

pytestmark = pytest.mark.programs


def kept(folder: Path, artifacts: str | None, database: str | None = None) -> Kept:
    made = Kept(folder)
    made.settings = Settings(data_dir=folder, database=database, artifacts=artifacts)
    made.options = store_options(made.settings)
    made.place = ConfiguredDatabase(find_portable(made.options), made.options)
    return made


@pytest.fixture
async def before(tmp_path: Path, storage: ObjectStorage, prefix: str) -> Kept:
    filled = kept(tmp_path / "before", storage.place(f"{prefix}/before"))
    async with filled.open() as box:
        await fill(box)
    return filled


@pytest.mark.parametrize("target", ["after", None])
async def test_a_backup_has_the_contents_and_is_restored_to_a_bucket_or_a_folder(
    tmp_path: Path, storage: ObjectStorage, prefix: str, before: Kept, target: str | None
) -> None:
    backup = before.back_up(tmp_path / "backup.zip")
    names = storage.names(f"{prefix}/before")
    after = kept(tmp_path / "after", target and storage.place(f"{prefix}/{target}"))
    after.take_key(before)
    after.restore(backup)

    await read_everything(after)
    await read_everything(before)
    with zipfile.ZipFile(backup) as archive:
        contents = [archive.read(name) for name in archive.namelist() if name.startswith("artifacts/")]
        tables = [name for name in archive.namelist() if name.startswith("tables/")]
    assert len(contents) == 1
    assert CONTENT[:100] not in contents[0]
    assert "tables/contents" not in tables
    assert storage.names(f"{prefix}/before") == names
    assert len(objects(storage, f"{prefix}/after")) == (0 if target is None else 1)


async def test_a_backup_of_a_folder_is_restored_to_a_bucket(
    tmp_path: Path, storage: ObjectStorage, prefix: str
) -> None:
    local = kept(tmp_path / "local", None)
    async with local.open() as box:
        await fill(box)
    after = kept(tmp_path / "after", storage.place(prefix))
    after.take_key(local)
    after.restore(local.back_up(tmp_path / "backup.zip"))

    await read_everything(after)
    assert len(objects(storage, prefix)) == 1


async def test_two_databases_of_one_bucket_delete_only_their_own_objects(
    tmp_path: Path, storage: ObjectStorage, prefix: str, before: Kept
) -> None:
    again = kept(tmp_path / "again", before.settings.artifacts)
    again.take_key(before)
    again.restore(before.back_up(tmp_path / "backup.zip"))
    async with again.open() as box:
        await box.recovery.data.forget(Principal.parse("acme:ann"))

    await read_everything(before)
    assert len(objects(storage, f"{prefix}/before")) == 1


async def test_a_restore_that_fails_leaves_no_objects(
    tmp_path: Path, storage: ObjectStorage, prefix: str, before: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with before.open() as box:
        await box.store.artifacts.put(b"another", artifact())
    backup = before.back_up(tmp_path / "backup.zip")
    after = kept(tmp_path / "after", storage.place(f"{prefix}/after"))
    after.take_key(before)
    put, done = Bucket.put_now, list[str]()

    def put_one(self: Bucket, name: str, data: bytes) -> None:
        if done:
            raise StoreError("object storage: no response")
        put(self, name, data)
        done.append(name)

    monkeypatch.setattr(Bucket, "put_now", put_one)
    with pytest.raises(StoreError, match="no response"):
        after.restore(backup)

    assert (len(done), objects(storage, f"{prefix}/after")) == (1, [])
    assert not (after.folder / "toolpost.db").exists()


async def test_an_object_that_is_missing_is_reported_by_the_backup(
    tmp_path: Path, storage: ObjectStorage, prefix: str, before: Kept
) -> None:
    [name] = storage.names(prefix)
    storage.store().delete(name)

    done = back_up(before.place.backend, before.options, tmp_path / "backup.zip")

    assert (len(done.missing), done.deleted, done.manifest.contents) == (1, 0, 0)


async def test_a_moved_database_keeps_its_objects(
    tmp_path: Path, storage: ObjectStorage, prefix: str, before: Kept, postgres_url: str
) -> None:
    names = storage.names(prefix)
    after = kept(before.folder, before.settings.artifacts, postgres_url)
    await move(before.place, after.place)

    await read_everything(after)
    assert storage.names(prefix) == names


async def test_rotated_contents_are_new_objects_with_the_new_key(
    tmp_path: Path, storage: ObjectStorage, prefix: str, before: Kept
) -> None:
    [old] = storage.names(prefix)
    async with before.open() as box:
        rotated = await box.store.rotate_key(retire=True)
        again = await box.store.rotate_key()
    await read_everything(before)

    assert (rotated["artifacts"], rotated["unreadable"], again["artifacts"]) == (1, 0, 1)
    assert old in storage.names(prefix)  # for the grace period
    assert len(storage.names(prefix)) == 3


async def test_the_check_of_the_database_tests_the_bucket(
    before: Kept, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = list(before.place.backend.check(before.options))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-canary-secret")
    wrong = list(before.place.backend.check(before.options))[-1]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", storage.environment["AWS_SECRET_ACCESS_KEY"])
    missing = list(before.place.backend.check(before.options._replace(artifacts="s3://no-such-bucket/x")))[-1]

    assert good[-1] == ("ok", f"artifacts: {before.settings.artifacts} can be listed")
    assert (wrong.status, "SignatureDoesNotMatch" in wrong.text, "wrong-canary" in wrong.text) == (
        "broken",
        True,
        False,
    )
    assert missing.status == "broken"
