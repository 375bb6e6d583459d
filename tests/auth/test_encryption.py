"""What is encrypted opens with the same key, for the same row, and not otherwise."""

import threading
from pathlib import Path

import pytest

from toolpost.auth.keys import FileCipher
from toolpost.contracts.errors import StoreError

ROW = "journal|acme|ann|call_1||call"


def test_what_was_encrypted_opens(tmp_path: Path) -> None:
    encrypted = FileCipher(tmp_path / "key").encrypt(b"secret", row=ROW)

    assert b"secret" not in encrypted
    assert FileCipher(tmp_path / "key").decrypt(encrypted, row=ROW) == b"secret"


def test_the_same_data_is_never_encrypted_the_same_way(tmp_path: Path) -> None:
    cipher = FileCipher(tmp_path / "key")

    assert len({cipher.encrypt(b"secret", row=ROW) for _ in range(100)}) == 100


def test_a_row_moved_to_another_user_does_not_open(tmp_path: Path) -> None:
    cipher = FileCipher(tmp_path / "key")
    encrypted = cipher.encrypt(b"secret", row=ROW)

    with pytest.raises(StoreError, match="'journal' cannot be decrypted"):
        cipher.decrypt(encrypted, row=ROW.replace("ann", "eve"))


def test_another_key_does_not_open_it(tmp_path: Path) -> None:
    encrypted = FileCipher(tmp_path / "one").encrypt(b"secret", row=ROW)

    with pytest.raises(StoreError, match=r"cannot be decrypted: it was encrypted with another key than .*two"):
        FileCipher(tmp_path / "two").decrypt(encrypted, row=ROW)


@pytest.mark.parametrize("at", [0, 1, 13, -1])
def test_one_changed_byte_does_not_open(tmp_path: Path, at: int) -> None:
    cipher = FileCipher(tmp_path / "key")
    encrypted = bytearray(cipher.encrypt(b"secret", row=ROW))
    encrypted[at] ^= 1

    with pytest.raises(StoreError):
        cipher.decrypt(bytes(encrypted), row=ROW)


@pytest.mark.parametrize("kept", [0, 1, 5, 13, 20])
def test_what_was_cut_short_does_not_open(tmp_path: Path, kept: int) -> None:
    cipher = FileCipher(tmp_path / "key")
    encrypted = cipher.encrypt(b"secret", row=ROW)

    with pytest.raises(StoreError):
        cipher.decrypt(encrypted[:kept], row=ROW)


def test_the_key_is_made_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "key"
    FileCipher(path).encrypt(b"secret", row=ROW)

    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_bytes()) == 32
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    FileCipher(path).encrypt(b"secret", row=ROW)
    path.chmod(mode)

    with pytest.raises(StoreError, match=f"chmod 600 {path}"):
        FileCipher(path).encrypt(b"secret", row=ROW)


def test_a_damaged_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"short")
    path.chmod(0o600)

    with pytest.raises(StoreError, match="damaged: 5 bytes instead of 32"):
        FileCipher(path).encrypt(b"secret", row=ROW)


def test_a_key_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreError, match="file/key cannot be read or created"):
        FileCipher(tmp_path / "file" / "key").encrypt(b"secret", row=ROW)


def test_those_who_make_the_key_at_once_get_the_same(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)
    encrypted: list[bytes] = []

    def work() -> None:
        cipher = FileCipher(tmp_path / "key")
        barrier.wait()
        encrypted.append(cipher.encrypt(b"secret", row=ROW))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [FileCipher(tmp_path / "key").decrypt(each, row=ROW) for each in encrypted] == [b"secret"] * 8
