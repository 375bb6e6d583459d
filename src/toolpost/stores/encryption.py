"""Encrypted values: JSON documents bound to their row, damaged rows, and encrypted cache files."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import Cipher
from toolpost.stores.durable_files import make_private_folder

UNREADABLE = "row_unreadable"
ROW_FAULTS = (StoreError, ValueError, TypeError, KeyError)
Row = TypeVar("Row")
Read = TypeVar("Read")
_log = logging.getLogger("toolpost.stores")


class RowCipher:
    """Encrypts JSON values bound to a row: its table, owner and key. In another row a value cannot be decrypted."""

    def __init__(self, cipher: Cipher) -> None:
        self._cipher = cipher

    def encrypt(self, value: Any, *row: str) -> bytes:
        """Encrypt a value for its row; StoreError if it is not JSON."""
        return self._cipher.encrypt(to_json(value, row[0]), row=_name(row))

    def reencrypt(self, encrypted: bytes, *row: str) -> bytes:
        """Encrypt the same value with the newest key."""
        name = _name(row)
        return self._cipher.encrypt(self._cipher.decrypt(encrypted, row=name), row=name)

    def decrypt(self, encrypted: bytes, *row: str) -> Any:
        """Decrypt the value of this row."""
        return json.loads(self._cipher.decrypt(encrypted, row=_name(row)))


def _name(row: tuple[str, ...]) -> str:
    """Join the parts of a row's name, escaped to keep them distinct."""
    return "|".join(part.replace("%", "%25").replace("|", "%7C") for part in row)


def to_json(value: Any, what: str) -> bytes:
    """Encode a value as JSON; StoreError if it is not JSON."""
    try:
        return json.dumps(value, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise StoreError(f"{what}: a value that is not JSON cannot be stored: {exc}; use JSON", cause=exc) from exc


def copy_json(value: Any, what: str) -> Any:
    """Copy a JSON value deeply; StoreError if it is not JSON."""
    return json.loads(to_json(value, what))


def readable_rows(rows: Iterable[Row], read: Callable[[Row], Read], name: Callable[[Row], str]) -> list[Read]:
    """Read rows; log and skip those that are damaged."""
    values: list[Read] = []
    for row in rows:
        try:
            values.append(read(row))
        except ROW_FAULTS as error:
            skip_damaged(name(row), error)
    return values


def skip_damaged(name: str, error: Exception) -> None:
    """Log a damaged row; raise any other error, because it may be temporary."""
    if isinstance(error, StoreError) and error.error_code != UNREADABLE:
        raise error
    _warn_once(name, str(error) if isinstance(error, StoreError) else type(error).__name__)


@lru_cache(maxsize=1000)  # Rows are read every few seconds.
def _warn_once(name: str, reason: str) -> None:
    _log.warning("%s is damaged and skipped: %s", name, reason)


class CacheFolder:
    """A folder of encrypted cache files, such as listings and documents; an unreadable file counts as missing."""

    def __init__(self, folder: Path, cipher: Cipher) -> None:
        self._folder = folder
        self._cipher = cipher

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file; None if it is missing or unreadable."""
        try:
            data = (self._folder / name).read_bytes()
            return self._cipher.decrypt(data, row=self._row(name))
        except (OSError, StoreError):
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically, readable by its owner only."""
        # Without the file, the next start only takes longer.
        with suppress(OSError, StoreError):
            make_private_folder(self._folder)
            handle, temporary = tempfile.mkstemp(dir=self._folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(self._cipher.encrypt(data, row=self._row(name)))
                Path(temporary).replace(self._folder / name)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise

    def remove(self, name: str) -> None:
        """Delete a file."""
        with suppress(OSError):
            (self._folder / name).unlink(missing_ok=True)

    def _row(self, name: str) -> str:
        return f"cache|{self._folder.name}|{name}"


class NoCipher:
    """A cipher without a key, for values that never leave the process."""

    def describe_key(self) -> str:
        return "no key"

    def prefix(self) -> bytes:
        return b""

    def knows(self, encrypted: bytes) -> bool:
        return True

    def encrypt(self, data: bytes, *, row: str) -> bytes:
        return data

    def decrypt(self, encrypted: bytes, *, row: str) -> bytes:
        return encrypted

    def rotate(self) -> None:
        """Do nothing, without a key."""

    def retire(self) -> None:
        """Do nothing, without a key."""
