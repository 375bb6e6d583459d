"""What is sealed opens with the same key, for the same row, and not otherwise."""

import threading
from pathlib import Path

import pytest

from toolpost.auth.keys import FileSealer
from toolpost.contracts.errors import StoreError

ROW = "journal|acme|ann|call_1||call"


def test_what_was_sealed_opens(tmp_path: Path) -> None:
    sealed = FileSealer(tmp_path / "key").seal(b"secret", row=ROW)

    assert b"secret" not in sealed
    assert FileSealer(tmp_path / "key").open(sealed, row=ROW) == b"secret"


def test_the_same_data_is_never_sealed_the_same_way(tmp_path: Path) -> None:
    sealer = FileSealer(tmp_path / "key")

    assert len({sealer.seal(b"secret", row=ROW) for _ in range(100)}) == 100


def test_a_row_moved_to_another_user_does_not_open(tmp_path: Path) -> None:
    sealer = FileSealer(tmp_path / "key")
    sealed = sealer.seal(b"secret", row=ROW)

    with pytest.raises(StoreError, match="'journal' does not open"):
        sealer.open(sealed, row=ROW.replace("ann", "eve"))


def test_another_key_does_not_open_it(tmp_path: Path) -> None:
    sealed = FileSealer(tmp_path / "one").seal(b"secret", row=ROW)

    with pytest.raises(StoreError, match=r"does not open: another key than .*two"):
        FileSealer(tmp_path / "two").open(sealed, row=ROW)


@pytest.mark.parametrize("at", [0, 1, 13, -1])
def test_one_changed_byte_does_not_open(tmp_path: Path, at: int) -> None:
    sealer = FileSealer(tmp_path / "key")
    sealed = bytearray(sealer.seal(b"secret", row=ROW))
    sealed[at] ^= 1

    with pytest.raises(StoreError):
        sealer.open(bytes(sealed), row=ROW)


@pytest.mark.parametrize("kept", [0, 1, 5, 13, 20])
def test_what_was_cut_short_does_not_open(tmp_path: Path, kept: int) -> None:
    sealer = FileSealer(tmp_path / "key")
    sealed = sealer.seal(b"secret", row=ROW)

    with pytest.raises(StoreError):
        sealer.open(sealed[:kept], row=ROW)


def test_the_key_is_made_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "key"
    FileSealer(path).seal(b"secret", row=ROW)

    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_bytes()) == 32
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    FileSealer(path).seal(b"secret", row=ROW)
    path.chmod(mode)

    with pytest.raises(StoreError, match=f"chmod 600 {path}"):
        FileSealer(path).seal(b"secret", row=ROW)


def test_a_damaged_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"short")
    path.chmod(0o600)

    with pytest.raises(StoreError, match="damaged: 5 bytes instead of 32"):
        FileSealer(path).seal(b"secret", row=ROW)


def test_a_key_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreError, match="file/key cannot be read or made"):
        FileSealer(tmp_path / "file" / "key").seal(b"secret", row=ROW)


def test_those_who_make_the_key_at_once_get_the_same(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)
    sealed: list[bytes] = []

    def work() -> None:
        sealer = FileSealer(tmp_path / "key")
        barrier.wait()
        sealed.append(sealer.seal(b"secret", row=ROW))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [FileSealer(tmp_path / "key").open(each, row=ROW) for each in sealed] == [b"secret"] * 8
