"""Backups that are made while a store is used, and what becomes of the calls that were open in them."""

import asyncio
import json
import secrets
import time
import zipfile
from pathlib import Path

import pytest

from tests.stores.places import (
    ANN_NAME,
    BOSS,
    Kept,
    back_up_and_continue,
    paid,
    read_everything,
    settle_unknown_calls,
)
from toolpost import Paused
from toolpost.contracts.clock import Clock
from toolpost.contracts.errors import StoreError
from toolpost.stores.backups import back_up, restore
from toolpost.testing.stores.jobs import job
from toolpost.testing.stores.samples import artifact


@pytest.fixture(autouse=True)
def _unpaid() -> None:
    paid.clear()


@pytest.fixture
def before(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "before")


@pytest.fixture
def after(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "after")


@pytest.fixture
async def backup(before: Kept, tmp_path: Path) -> Path:
    """A backup with a call that waits and one that runs; both have happened since."""
    return await back_up_and_continue(before, tmp_path)


async def test_stored_data_is_there_again_and_verifies(backup: Path, before: Kept, after: Kept) -> None:
    after.take_key(before)
    after.restore(backup)

    await read_everything(after)


async def test_calls_that_were_open_are_unknown_and_do_not_run_again(backup: Path, before: Kept, after: Kept) -> None:
    after.take_key(before)
    assert (after.restore(backup), paid) == (2, ["eve", "bob"])

    await settle_unknown_calls(after)


async def test_an_unknown_call_runs_again_only_if_a_person_says_so(backup: Path, before: Kept, after: Kept) -> None:
    after.take_key(before)
    after.restore(backup)

    async with after.open() as box:
        [question] = [action for action in await box.pending.list(by=BOSS) if action.arguments["to"] == "bob"]
        again = await box.pending.answer(question.id, by=BOSS, decision="rerun")
        assert isinstance(again, Paused)  # the approval that the backup did not have
        done = await box.approve(again.pending_id, by=BOSS)

    assert (done.status, paid) == ("completed", ["eve", "bob", "bob"])


async def test_positions_of_events_never_repeat(backup: Path, before: Kept, after: Kept) -> None:
    async with before.open() as box:
        assigned = (await box.store.events.read())[-1].id
    after.take_key(before)
    after.restore(backup)

    async with after.open() as box:
        await box.call("note", {"text": "new"}, user=ANN_NAME)
        followed = await box.store.events.read(after=assigned)

    assert "new" in repr([event.payload for event in followed])
    assert followed[-1].id < 2**53


async def test_a_backup_of_yesterday_leaves_room_for_the_positions_of_a_day(
    backup: Path, before: Kept, after: Kept
) -> None:
    after.take_key(before)
    tomorrow = Clock(wall=lambda: time.time() + 86_400)

    done = restore(after.place.backend, after.options._replace(clock=tomorrow), backup)

    assert done.position > 86_400 * 10_000 * 4096


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"schema": 999}, "has version 999, this toolpost knows versions up to"), ({"format": 2}, "in a newer format")],
)
async def test_a_backup_of_a_newer_version_is_refused(
    backup: Path, before: Kept, after: Kept, tmp_path: Path, change: dict[str, int], reason: str
) -> None:
    after.take_key(before)
    newer = tmp_path / "newer.zip"
    with zipfile.ZipFile(backup) as old, zipfile.ZipFile(newer, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, json.dumps({**json.loads(data), **change}) if name == "manifest.json" else data)

    with pytest.raises(StoreError, match=reason):
        after.restore(newer)
    assert [path.name for path in after.folder.iterdir()] == ["key"]


@pytest.mark.programs
async def test_a_backup_on_a_full_disk_is_refused_and_leaves_no_file(before: Kept, small_disk: Path) -> None:
    async with before.open() as box:
        await box.store.artifacts.put(secrets.token_bytes(1 << 21), artifact())

    with pytest.raises(StoreError, match=r"cannot be written: No space left on device; free some space"):
        before.back_up(small_disk / "backup.zip")
    assert not [*small_disk.iterdir()]


async def test_a_backup_is_complete_while_others_write(before: Kept, after: Kept, tmp_path: Path) -> None:
    async with before.open() as box:

        async def write() -> None:
            for number in range(60):
                await box.call("note", {"text": str(number)}, user=ANN_NAME)
                await box.store.artifacts.put(str(number).encode(), artifact())

        writing = asyncio.ensure_future(write())
        path = await asyncio.to_thread(before.back_up, tmp_path / "during.zip")
        await writing
    after.take_key(before)
    after.restore(path)

    async with after.open() as box:
        kept = await box.store.artifacts.list(limit=1000)
        assert [len(await box.store.artifacts.read(ref.id, tenant=None)) for ref in kept] == [ref.size for ref in kept]
        assert await box.store.events.verify() == []


def damaged(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "cut off":
        path.write_bytes(data[: len(data) // 2])
    elif how == "changed":
        data[len(data) // 3] ^= 0xFF
        path.write_bytes(data)
    elif how == "another ZIP file":
        with zipfile.ZipFile(path, "w") as other:
            other.writestr("readme.txt", "hello")
    else:
        path.write_bytes(b"no backup")


@pytest.mark.parametrize("how", ["cut off", "changed", "another ZIP file", "text"])
async def test_a_damaged_backup_is_refused_and_changes_nothing(
    backup: Path, before: Kept, after: Kept, how: str
) -> None:
    after.take_key(before)
    damaged(backup, how)

    with pytest.raises(StoreError, match=r"damaged or incomplete|not a backup"):
        after.restore(backup)
    assert [path.name for path in after.folder.iterdir()] == ["key"]


async def test_a_backup_of_another_key_is_refused(backup: Path, before: Kept, after: Kept) -> None:
    async with after.open():
        pass  # which makes another key
    for path in after.folder.glob("toolpost.db*"):
        path.unlink()

    with pytest.raises(StoreError, match="was encrypted with another key"):
        after.restore(backup)
    assert not [*after.folder.glob("toolpost.db*")]
    assert (before.folder / "key").read_bytes() != (after.folder / "key").read_bytes()


async def test_a_database_with_data_is_not_overwritten(backup: Path, before: Kept) -> None:
    with pytest.raises(StoreError, match=r"is not empty: it contains .*of runs"):
        before.restore(backup)
    async with before.open() as box:
        with pytest.raises(StoreError, match="1 process uses the database"):
            before.restore(backup)
        assert len(await box.store.events.runs()) == 4


async def test_a_backup_contains_no_key_and_only_its_owner_reads_it(backup: Path, before: Kept) -> None:
    key = (before.folder / "key").read_bytes()
    with zipfile.ZipFile(backup) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}

    assert backup.stat().st_mode & 0o777 == 0o600
    assert not [name for name, data in parts.items() if name == "key" or key.strip() in data]
    assert "bob" not in parts["tables/pending"].decode(errors="replace")


async def test_an_existing_file_is_not_overwritten(backup: Path, before: Kept) -> None:
    written = backup.read_bytes()
    with pytest.raises(StoreError, match="exists; name another file"):
        before.back_up(backup)
    assert backup.read_bytes() == written


async def test_an_artifact_without_its_content_is_reported(before: Kept, tmp_path: Path) -> None:
    async with before.open() as box:
        lost = await box.store.artifacts.put(b"lost", artifact())
        await box.store.artifacts.put(b"kept", artifact())
    next((before.folder / "artifacts").glob(f"*/{lost.sha256}")).unlink()

    done = back_up(before.place.backend, before.options, tmp_path / "backup.zip")

    assert (done.missing, done.deleted, done.manifest.rows["artifacts"]) == ([lost.sha256], 0, 1)


async def test_background_work_that_was_open_has_failed_and_is_not_run(
    before: Kept, after: Kept, tmp_path: Path
) -> None:
    async with before.open() as box:
        for name in ("waits", "runs"):
            await box.engine.enqueue(job(name))
        await box.store.jobs.begin("run:runs:0")
        archive = tmp_path / "jobs.zip"
        back_up(before.place.backend, before.place.options, archive)
    after.take_key(before)
    after.restore(archive)

    async with after.open() as box:
        ended = [await box.store.jobs.of_run(name, tenant="acme") for name in ("waits", "runs")]
        depth = await box.engine.depth()
    assert [one is not None and one.status for one in ended] == ["failed", "failed"]
    assert [one is not None and one.outcome and one.outcome["error"]["error_code"] for one in ended] == [
        "interrupted",
        "interrupted",
    ]
    assert {(one.waiting, one.running) for one in depth} == {(0, 0)}
