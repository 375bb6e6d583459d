"""Large results, on disk and in memory."""

from pathlib import Path

import pytest

from toolpost.contracts.errors import StoreError
from toolpost.stores.sqlite.store import SQLiteStore
from toolpost.testing.stores.samples import ANN, EVE, artifact

DATA = bytes(range(256)) * 40


def content_files(folder: Path) -> list[Path]:
    return [path for path in (folder / "artifacts").rglob("*") if path.is_file()]


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
async def test_any_part_of_any_size_is_read_from_what_is_encrypted(sqlite: SQLiteStore, size: int) -> None:
    data = LARGE[:size]
    ref = await sqlite.artifacts.put(data, artifact())

    for offset in (0, 1, CHUNK - 1, CHUNK, 2 * CHUNK - 5, size):
        for limit in (None, 0, 1, 10, CHUNK, 2 * CHUNK):
            part = await sqlite.artifacts.read(ref.id, tenant=None, offset=offset, limit=limit)
            assert part == data[offset : None if limit is None else offset + limit]


async def test_a_part_is_read_without_the_rest(sqlite: SQLiteStore, tmp_path: Path) -> None:
    ref = await sqlite.artifacts.put(LARGE, artifact())
    (path,) = content_files(tmp_path)
    encrypted = bytearray(path.read_bytes())
    encrypted[-1] ^= 1  # only the last chunk is damaged
    path.write_bytes(encrypted)

    assert await sqlite.artifacts.read(ref.id, tenant=None, offset=CHUNK + 7, limit=20) == LARGE[CHUNK + 7 :][:20]
    with pytest.raises(StoreError, match="cannot be decrypted"):
        await sqlite.artifacts.read(ref.id, tenant=None, offset=len(LARGE) - 1)


async def test_content_put_in_the_place_of_other_content_does_not_open(sqlite: SQLiteStore, tmp_path: Path) -> None:
    ref, other = [await sqlite.artifacts.put(data, artifact()) for data in (LARGE, LARGE[::-1])]
    folder = tmp_path / "artifacts"
    (folder / other.sha256[:2] / other.sha256).replace(folder / ref.sha256[:2] / ref.sha256)

    with pytest.raises(StoreError, match="cannot be decrypted"):
        await sqlite.artifacts.read(ref.id, tenant=None)


async def test_a_file_that_is_missing_is_named(sqlite: SQLiteStore, tmp_path: Path) -> None:
    ref = await sqlite.artifacts.put(DATA, artifact())
    (path,) = content_files(tmp_path)
    path.unlink()

    with pytest.raises(StoreError, match=f"{ref.sha256}' cannot be read: No such file"):
        await sqlite.artifacts.read(ref.id, tenant=ANN.tenant)


async def test_a_file_that_was_cut_short_is_written_again(sqlite: SQLiteStore, tmp_path: Path) -> None:
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
