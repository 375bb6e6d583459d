"""Large results, on disk and in memory."""

import re
import shutil
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from tests.stores.conftest import AnyStore, open_store
from tests.stores.samples import ANN, BOB, EVE, artifact
from toolpost.contracts.errors import StoreError
from toolpost.stores.database import MIGRATIONS, migrate
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


async def test_where_a_user_is_asked_for_only_theirs_are_found(store: AnyStore) -> None:
    hers, his = [await store.artifacts.put(who.user.encode(), artifact(who=who)) for who in (ANN, BOB)]

    listed = await store.artifacts.list(tenant=ANN.tenant, user=ANN.user)
    found = [await store.artifacts.info(ref.id, tenant=ANN.tenant, user=ANN.user) for ref in (hers, his)]

    assert (listed, found) == ([hers], [hers, None])
    assert await store.artifacts.read(hers.id, tenant=ANN.tenant, user=ANN.user) == b"ann"
    with pytest.raises(KeyError):
        await store.artifacts.read(his.id, tenant=ANN.tenant, user=ANN.user)


async def test_artifacts_of_an_older_version_are_of_the_user_of_their_call(tmp_path: Path) -> None:
    older = tmp_path / "migrations"
    older.mkdir()
    for file in sorted(MIGRATIONS.glob("*.sql"))[:6]:
        shutil.copy(file, older)
    with closing(sqlite3.connect(tmp_path / "toolpost.db", isolation_level=None)) as db:
        migrate(db, tmp_path / "toolpost.db", older)
        event = "INSERT INTO events VALUES (NULL, 'run_1', ?, 400, 1.0, ?, ?, ?, '{}', x'', NULL)"
        db.execute(event, (1, "call_1", "acme", "ann"))
        db.execute(event, (2, "call_2", "acme", "bob"))
        db.execute(event, (3, "call_3", "other", "eve"))
        kept = "INSERT INTO artifacts VALUES (?, 'ab', 1, 'text/plain', '', 'acme', 'run_1', ?, 'make', 1.0)"
        for number in range(1, 4):
            db.execute(kept, (f"art_{number}", f"call_{number}"))

    async with open_store(tmp_path) as store:
        users = {ref.id: ref.user for ref in await store.artifacts.list()}

    assert users == {"art_1": "ann", "art_2": "bob", "art_3": ""}


async def test_artifacts_are_listed_newest_first(store: AnyStore) -> None:
    refs = [
        await store.artifacts.put(DATA, artifact(run_id=f"run_{number % 2}", at=1000.0 + number // 2))
        for number in range(4)
    ]
    ids = [ref.id for ref in refs]

    assert [ref.id for ref in await store.artifacts.list()] == ids[::-1]
    assert [ref.id for ref in await store.artifacts.list(run_id="run_1", limit=1)] == [ids[3]]
    assert [ref.id for ref in await store.artifacts.list(before=ids[3], limit=2)] == [ids[2], ids[1]]
    assert [ref.id for ref in await store.artifacts.list(before=ids[2], run_id="run_1")] == [ids[1]]
    assert await store.artifacts.list(before="art_9") == []


async def test_the_same_content_has_two_ids_and_one_file(sqlite: SQLiteStore, tmp_path: Path) -> None:
    one, two = await sqlite.artifacts.put(DATA, artifact()), await sqlite.artifacts.put(DATA, artifact(who=EVE))

    (path,) = content_files(tmp_path)
    assert one.id != two.id
    assert path == tmp_path / "artifacts" / one.sha256[:2] / one.sha256
    assert path.stat().st_mode & 0o777 == 0o600
    assert bytes(range(16)) not in path.read_bytes()


LARGE = DATA * 20
CHUNK = 1 << 16


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, len(LARGE)])
async def test_any_part_of_any_size_is_read_from_what_is_sealed(sqlite: SQLiteStore, size: int) -> None:
    data = LARGE[:size]
    ref = await sqlite.artifacts.put(data, artifact())

    for offset in (0, 1, CHUNK - 1, CHUNK, 2 * CHUNK - 5, size):
        for limit in (None, 0, 1, 10, CHUNK, 2 * CHUNK):
            part = await sqlite.artifacts.read(ref.id, tenant=None, offset=offset, limit=limit)
            assert part == data[offset : None if limit is None else offset + limit]


async def test_a_part_is_read_without_the_rest(sqlite: SQLiteStore, tmp_path: Path) -> None:
    ref = await sqlite.artifacts.put(LARGE, artifact())
    (path,) = content_files(tmp_path)
    sealed = bytearray(path.read_bytes())
    sealed[-1] ^= 1  # only the last chunk is damaged
    path.write_bytes(sealed)

    assert await sqlite.artifacts.read(ref.id, tenant=None, offset=CHUNK + 7, limit=20) == LARGE[CHUNK + 7 :][:20]
    with pytest.raises(StoreError, match="does not open"):
        await sqlite.artifacts.read(ref.id, tenant=None, offset=len(LARGE) - 1)


async def test_content_put_in_the_place_of_other_content_does_not_open(sqlite: SQLiteStore, tmp_path: Path) -> None:
    ref, other = [await sqlite.artifacts.put(data, artifact()) for data in (LARGE, LARGE[::-1])]
    folder = tmp_path / "artifacts"
    (folder / other.sha256[:2] / other.sha256).replace(folder / ref.sha256[:2] / ref.sha256)

    with pytest.raises(StoreError, match="does not open"):
        await sqlite.artifacts.read(ref.id, tenant=None)


async def test_a_file_of_an_older_version_is_read_and_sealed_when_it_is_next_kept(
    sqlite: SQLiteStore, tmp_path: Path
) -> None:
    ref = await sqlite.artifacts.put(LARGE, artifact())
    (path,) = content_files(tmp_path)
    path.write_bytes(LARGE)

    assert await sqlite.artifacts.read(ref.id, tenant=None, offset=5, limit=10) == LARGE[5:15]
    again = await sqlite.artifacts.put(LARGE, artifact())
    assert LARGE[:100] not in path.read_bytes()
    assert await sqlite.artifacts.read(again.id, tenant=None) == LARGE


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
