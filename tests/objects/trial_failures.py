"""Contents in object storage when something ends or fails: processes, credentials, the bucket, the whole storage."""

import asyncio
import logging
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from tests.gateway.serving import served
from tests.objects.crashing import CONTENT
from tests.objects.server import SECRET, ObjectStorage, running
from tests.objects.stores import NOW, collect, collect_everything, objects, open_store, rows, states
from tests.parts import ROOT
from toolpost import Completed, Failed, Settings, Toolbox, tool
from toolpost.contracts.errors import StoreError
from toolpost.stores.object_storage import Bucket
from toolpost.stores.sql.content_objects import GRACE_S
from toolpost.testing.stores.samples import artifact

pytestmark = pytest.mark.programs

STEPS = ("before the upload", "during the upload", "after the upload", "after the commit")
written: list[str] = []


@tool(side_effects="write", destructive=False)
async def export(name: str) -> str:
    """Write a file and return its large content."""
    written.append(name)
    return name * 100_000


@tool(side_effects="read")
async def small() -> str:
    """Return a short text."""
    return "small"


@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_process_loses_nothing_and_leaves_nothing(
    tmp_path: Path, storage: ObjectStorage, prefix: str, step: str
) -> None:
    place = storage.place(prefix)
    async with open_store(tmp_path, place) as store:
        kept = await store.artifacts.put(b"kept", artifact())
    child = [sys.executable, "-m", "tests.objects.crashing", step, str(tmp_path), place]
    killed = await asyncio.to_thread(subprocess.run, child, cwd=ROOT, capture_output=True, check=False, timeout=60)

    async with open_store(tmp_path, place) as store:
        await collect_everything(store)
        found = await store.artifacts.list()
        contents = [await store.artifacts.read(ref.id, tenant=None) for ref in found]

    assert killed.returncode == -9, killed.stderr.decode()
    assert contents == ([CONTENT, b"kept"] if step == "after the commit" else [b"kept"])
    assert kept in found
    assert [name for name, _ in rows(tmp_path)] == objects(storage, prefix)
    assert set(states(tmp_path)) == {"ready"}


async def test_an_object_is_removed_after_the_grace_period_and_never_a_shared_one(
    tmp_path: Path, storage: ObjectStorage, prefix: str
) -> None:
    async with open_store(tmp_path, storage.place(prefix)) as store:
        one, two = [await store.artifacts.put(b"the same", artifact(run_id=run)) for run in ("run_1", "run_2")]
        await store.artifacts.put(b"alone", artifact(run_id="run_1"))
        await _delete(tmp_path, "run_1")
        await collect(store, hours=0)
        during = objects(storage, prefix)
        await collect(store, hours=GRACE_S / 3600 + 0.1)
        after = objects(storage, prefix)
        again = await store.artifacts.put(b"alone", artifact(run_id="run_3"))
        contents = [await store.artifacts.read(ref.id, tenant=None) for ref in (two, again)]

    assert one.sha256 == two.sha256
    assert (len(during), len(after)) == (2, 1)
    assert contents == [b"the same", b"alone"]


async def test_a_content_that_comes_back_in_the_grace_period_is_a_new_object(
    tmp_path: Path, storage: ObjectStorage, prefix: str
) -> None:
    async with open_store(tmp_path, storage.place(prefix)) as store:
        await store.artifacts.put(b"comes back", artifact(run_id="run_1"))
        await _delete(tmp_path, "run_1")
        await collect(store, hours=0)
        back = await store.artifacts.put(b"comes back", artifact(run_id="run_2"))
        await collect_everything(store)
        content = await store.artifacts.read(back.id, tenant=None)

    assert (content, states(tmp_path)) == (b"comes back", {"ready": 1})
    assert [name for name, _ in rows(tmp_path)] == objects(storage, prefix)


async def test_an_upload_that_took_too_long_is_an_error_and_leaves_nothing(
    tmp_path: Path, storage: ObjectStorage, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Bucket.put

    async def put_slowly(self: Bucket, name: str, data: bytes) -> None:
        await collect_everything(store)  # what another process does hours later
        await put(self, name, data)

    monkeypatch.setattr(Bucket, "put", put_slowly)
    async with open_store(tmp_path, storage.place(prefix)) as store:
        with pytest.raises(StoreError, match="the upload took too long"):
            await store.artifacts.put(b"late", artifact())

        assert (await store.artifacts.list(), objects(storage, prefix), rows(tmp_path)) == ([], [], [])


async def test_a_cancelled_upload_leaves_nothing(
    tmp_path: Path, storage: ObjectStorage, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, uploaded = Bucket.put, asyncio.Event()

    async def put_and_wait(self: Bucket, name: str, data: bytes) -> None:
        await put(self, name, data)
        uploaded.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Bucket, "put", put_and_wait)
    async with open_store(tmp_path, storage.place(prefix)) as store:
        upload = asyncio.ensure_future(store.artifacts.put(b"cancelled", artifact()))
        await uploaded.wait()
        upload.cancel()
        await asyncio.gather(upload, return_exceptions=True)
        marked = states(tmp_path)
        await collect_everything(store)

    assert (marked, rows(tmp_path), objects(storage, prefix)) == ({"deleted": 1}, [], [])


async def test_a_wrong_secret_is_reported_without_the_secret_and_other_calls_continue(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "canary-that-is-another-secret"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", wrong)
    with caplog.at_level(logging.DEBUG):
        async with served(tmp_path / "other", [export, small], artifacts=place) as other:
            failed = await other.box.call("export", {"name": "a"})
            done = await other.box.call("small", {})
            upload = await other.http.post("/api/v1/artifacts", content=b"file")

    assert isinstance(failed, Failed)
    assert "SignatureDoesNotMatch" in failed.error.message
    assert "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment" in failed.error.message
    assert isinstance(done, Completed)
    assert (upload.status_code, upload.json()["code"]) == (503, "store_unavailable")
    for text in (failed.error.message, repr(failed.error.__cause__), upload.text, caplog.text):
        assert wrong not in text
        assert SECRET not in text


async def test_a_bucket_that_disappears_is_reported_and_other_calls_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.clear()
    with running() as storage:
        for name, value in storage.environment.items():
            monkeypatch.setenv(name, value)
        async with served(tmp_path / "data", [export, small], artifacts=storage.place("p")) as gate:
            first = await gate.box.call("export", {"name": "a"}, user="acme:ann")
            assert isinstance(first, Completed)
            path = f"/api/v1/artifacts/{first.artifacts[0]}/content"
            storage.delete_bucket("artifacts")
            failed = await gate.box.call("export", {"name": "b"}, user="acme:ann")
            small_one = await gate.box.call("small", {})
            read = await gate.http.get(path, headers=await gate.key("acme:ann", "call"))
            ready = await gate.http.get("/readyz")
            runs = await gate.box.store.events.runs(tenant="acme")
            storage.create_bucket("artifacts")
            later = await gate.box.call("export", {"name": "c"}, user="acme:ann")

    assert isinstance(failed, Failed)
    assert "`export` ran, but its result could not be stored" in failed.error.message
    assert "object storage s3://artifacts/p: cannot write" in failed.error.message
    assert not failed.error.is_retryable
    assert written == ["a", "b", "c"]
    assert (small_one.status, later.status) == ("completed", "completed")
    assert (read.status_code, read.json()["code"], ready.status_code) == (503, "store_unavailable", 200)
    assert [run.status for run in runs if run.tool_name == "export"] == ["failed", "completed"]


async def test_a_storage_that_is_down_keeps_deleted_objects_for_the_next_attempt(
    tmp_path: Path,
    storage: ObjectStorage,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_store(tmp_path, storage.place(prefix)) as store:
        await store.artifacts.put(b"deleted", artifact(run_id="run_1"))
        await _delete(tmp_path, "run_1")
        delete = obstore.delete_async

        async def refuse(*_: object) -> None:
            raise obstore.exceptions.GenericError("Generic S3 error: HTTP error: error sending request")

        monkeypatch.setattr(obstore, "delete_async", refuse)
        await collect(store, hours=0)
        await collect(store, hours=3)
        during = states(tmp_path)
        monkeypatch.setattr(obstore, "delete_async", delete)
        await collect(store, hours=4)

    assert (during, rows(tmp_path), objects(storage, prefix)) == ({"deleted": 1}, [], [])
    assert "1 deleted contents stay until the next attempt: object storage" in caplog.text


async def test_objects_that_are_gone_already_do_not_keep_others(
    tmp_path: Path, storage: ObjectStorage, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete, asked = obstore.delete_async, list[int]()

    async def as_other_storages(store: S3Store, names: Sequence[str]) -> None:
        asked.append(len(names))
        if len(names) > 1:
            raise FileNotFoundError("Object at location x not found")
        await delete(store, names)

    async with open_store(tmp_path, storage.place(prefix)) as store:
        for text in (b"one", b"two", b"three"):
            await store.artifacts.put(text, artifact(run_id="run_1"))
        storage.store().delete(storage.names(prefix)[1])
        await _delete(tmp_path, "run_1")
        monkeypatch.setattr(obstore, "delete_async", as_other_storages)
        await collect_everything(store)

    assert (asked, rows(tmp_path), objects(storage, prefix)) == ([3, 1, 1, 1], [], [])


async def test_a_command_collects_the_remains_of_an_earlier_one(
    tmp_path: Path, storage: ObjectStorage, prefix: str
) -> None:
    async with open_store(tmp_path, storage.place(prefix)) as store:
        await store.artifacts.put(b"left", artifact(run_id="run_1"))
        await _delete(tmp_path, "run_1")
        await collect(store, hours=0)

    async with Toolbox(settings=Settings(data_dir=tmp_path, artifacts=storage.place(prefix))):
        pass  # long after

    assert (rows(tmp_path), objects(storage, prefix)) == ([], [])


async def test_an_object_that_was_cut_short_or_replaced_is_not_read(
    tmp_path: Path, storage: ObjectStorage, prefix: str
) -> None:
    async with open_store(tmp_path, storage.place(prefix)) as store:
        one, two = [await store.artifacts.put(data * 70_000, artifact()) for data in (b"1", b"2")]
        first, second = storage.names(prefix)
        raw = [bytes(storage.store().get(name).bytes()) for name in (first, second)]
        for name, data in ((first, raw[1]), (second, raw[0][:-1])):
            obstore.put(storage.store(), name, data, use_multipart=False)
        found: list[str] = []
        for ref in (one, two):
            with pytest.raises(StoreError) as error:
                await store.artifacts.read(ref.id, tenant=None)
            found.append(error.value.message)

    assert sorted(text.split(":")[0] for text in found if "cannot be decrypted" in text) == [
        "encrypted data of 'artifact' cannot be decrypted"
    ]
    assert sum("is damaged: its size is wrong" in text for text in found) == 1


async def test_another_place_is_refused_while_contents_are_in_this_one(
    tmp_path: Path, storage: ObjectStorage, prefix: str
) -> None:
    async with open_store(tmp_path, storage.place(prefix)) as store:
        await store.artifacts.put(b"here", artifact())

    for other in (None, "s3://another/prefix"):
        with pytest.raises(StoreError, match=f"contents of artifacts are in s3://artifacts/{prefix}, but"):
            open_store(tmp_path, other)


async def test_contents_of_before_are_read_from_the_data_folder(
    tmp_path: Path, storage: ObjectStorage, prefix: str
) -> None:
    async with open_store(tmp_path, None) as store:
        before = await store.artifacts.put(b"in a file", artifact(run_id="run_of_before"))
    async with open_store(tmp_path, storage.place(prefix), at=NOW + 1) as store:
        after = await store.artifacts.put(b"in an object", artifact())
        contents = [await store.artifacts.read(ref.id, tenant=None) for ref in (before, after)]
        rotated = await store.rotate_key(retire=True)
        again = [await store.artifacts.read(ref.id, tenant=None) for ref in (before, after)]
        await _delete(tmp_path, "run_of_before")
        await collect_everything(store)

    assert contents == again == [b"in a file", b"in an object"]
    assert (rotated["artifacts"], rotated["unreadable"]) == (2, 0)
    assert not [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()]
    assert states(tmp_path) == {"ready": 1}


async def _delete(folder: Path, run_id: str) -> None:
    """Delete the artifacts of a run, as a quota does."""
    with closing(sqlite3.connect(folder / "toolpost.db", isolation_level=None, timeout=10)) as db:
        db.execute("DELETE FROM artifacts WHERE run_id = ?", (run_id,))
