"""Large results, on disk and in memory."""

import re
from hashlib import sha256
from pathlib import Path

import pytest

from tests.stores.conftest import AnyStore
from tests.stores.samples import ANN, EVE, artifact
from toolpost.contracts.errors import StoreError
from toolpost.stores.sqlite import SQLiteStore

DATA = bytes(range(256)) * 40


def content_files(folder: Path) -> list[Path]:
    return [path for path in (folder / "artifacts").rglob("*") if path.is_file()]


async def test_an_artifact_is_described_by_the_store(store: AnyStore) -> None:
    ref = await store.artifacts.put(DATA, artifact())

    assert re.fullmatch(r"art_[0-9a-f]{32}", ref.id)
    assert (ref.sha256, ref.size) == (sha256(DATA).hexdigest(), len(DATA))
    assert (ref.name, ref.tenant, ref.created_at) == ("report.txt", "acme", 1000.0)
    assert await store.artifacts.info(ref.id, tenant=ANN.tenant) == ref


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [
        (0, None, DATA),
        (10, 20, DATA[10:30]),
        (len(DATA) - 5, 100, DATA[-5:]),
        (len(DATA), None, b""),
        (10**9, 5, b""),
        (0, 0, b""),
        (-3, 4, DATA[:4]),
    ],
)
async def test_any_part_can_be_read(store: AnyStore, offset: int, limit: int | None, expected: bytes) -> None:
    ref = await store.artifacts.put(DATA, artifact())

    assert await store.artifacts.read(ref.id, tenant=ANN.tenant, offset=offset, limit=limit) == expected


async def test_an_id_is_good_only_within_its_tenant(store: AnyStore) -> None:
    ref = await store.artifacts.put(DATA, artifact())

    assert await store.artifacts.info(ref.id, tenant=EVE.tenant) is None
    assert await store.artifacts.list(tenant=EVE.tenant) == []
    with pytest.raises(KeyError):
        await store.artifacts.read(ref.id, tenant=EVE.tenant)
    with pytest.raises(KeyError):
        await store.artifacts.read("art_x", tenant=None)


async def test_artifacts_are_listed_newest_first(store: AnyStore) -> None:
    refs = [
        await store.artifacts.put(DATA, artifact(run_id=f"run_{number % 2}", at=1000.0 + number // 2))
        for number in range(4)
    ]
    ids = [ref.id for ref in refs]

    assert [ref.id for ref in await store.artifacts.list()] == ids[::-1]
    assert [ref.id for ref in await store.artifacts.list(run_id="run_1", limit=1)] == [ids[3]]


async def test_the_same_content_has_two_ids_and_one_file(sqlite: SQLiteStore, tmp_path: Path) -> None:
    one, two = await sqlite.artifacts.put(DATA, artifact()), await sqlite.artifacts.put(DATA, artifact(who=EVE))

    (path,) = content_files(tmp_path)
    assert one.id != two.id
    assert path == tmp_path / "artifacts" / one.sha256[:2] / one.sha256
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == DATA


async def test_a_file_that_is_missing_is_named(sqlite: SQLiteStore, tmp_path: Path) -> None:
    ref = await sqlite.artifacts.put(DATA, artifact())
    (path,) = content_files(tmp_path)
    path.unlink()

    with pytest.raises(StoreError, match=f"{ref.sha256}' cannot be read: No such file"):
        await sqlite.artifacts.read(ref.id, tenant=ANN.tenant)


async def test_a_file_that_was_cut_short_is_written_anew(sqlite: SQLiteStore, tmp_path: Path) -> None:
    await sqlite.artifacts.put(DATA, artifact())
    (path,) = content_files(tmp_path)
    path.write_bytes(DATA[:10])

    ref = await sqlite.artifacts.put(DATA, artifact())

    assert await sqlite.artifacts.read(ref.id, tenant=None) == DATA


async def test_a_folder_that_cannot_be_written_is_named(sqlite: SQLiteStore, tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("in the way")

    with pytest.raises(StoreError, match="cannot be written: Not a directory"):
        await sqlite.artifacts.put(DATA, artifact())
    assert await sqlite.artifacts.list() == []
