"""Sealed values: JSON documents bound to their row, rows that no longer open, and sealed cache files."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import Sealer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class RowSealer:
    """Seals values to rows; a row is named by its table, its owner and its key."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def seal(self, value: Any, *row: str) -> bytes:
        """The value, sealed; StoreError when it is not JSON."""
        return self._sealer.seal(to_json(value, row[0]), row=_name(row))

    def mark(self) -> bytes:
        """How all that is sealed now begins."""
        return self._sealer.mark()

    def rotate(self) -> None:
        """Create a key that seals from now on."""
        self._sealer.rotate()

    def retire(self) -> None:
        """Delete all keys but the newest."""
        self._sealer.retire()

    def reseal(self, sealed: bytes, *row: str) -> bytes:
        """The same value, sealed with the newest key."""
        name = _name(row)
        return self._sealer.seal(self._sealer.open(sealed, row=name), row=name)

    def open(self, sealed: bytes, *row: str) -> Any:
        """The value that was sealed for this row."""
        return json.loads(self._sealer.open(sealed, row=_name(row)))


def _name(row: tuple[str, ...]) -> str:
    """The row's identity; no part of it can be read as two."""
    return "|".join(part.replace("%", "%25").replace("|", "%7C") for part in row)


def to_json(value: Any, what: str) -> bytes:
    """A value as the bytes of a JSON document."""
    try:
        return json.dumps(value, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise StoreError(f"{what}: a value that is not JSON cannot be kept ({exc}); use plain data", cause=exc) from exc


def detached(value: Any, what: str) -> Any:
    """A copy that shares nothing with the original; StoreError when it is not JSON."""
    return json.loads(to_json(value, what))


UNREADABLE = "row_unreadable"
FAULTS = (StoreError, ValueError, TypeError, KeyError)
Row = TypeVar("Row")
Read = TypeVar("Read")

_log = logging.getLogger("toolpost.stores")


def readable(rows: Iterable[Row], read: Callable[[Row], Read], name: Callable[[Row], str]) -> list[Read]:
    """What can be read of some rows; the others are passed over."""
    found: list[Read] = []
    for row in rows:
        try:
            found.append(read(row))
        except FAULTS as error:
            pass_over(name(row), error)
    return found


def pass_over(name: str, error: Exception) -> None:
    """Tell of a row that is damaged; a fault that is not the row's own is raised, because it may end by itself."""
    if isinstance(error, StoreError) and error.error_code != UNREADABLE:
        raise error
    _tell(name, str(error) if isinstance(error, StoreError) else type(error).__name__)


@lru_cache(maxsize=1000)
def _tell(name: str, said: str) -> None:
    """Once for each, because rows are looked at every few seconds; what they hold is not told."""
    _log.warning("%s is damaged and passed over: %s", name, said)


class CacheFolder:
    """Whatever is wrong with a file, it counts as not there; what cannot be written is not kept.

    Older versions kept text as it is: such a file is read, and sealed when it is next written.
    """

    def __init__(self, folder: Path, sealer: Sealer) -> None:
        self._folder = folder
        self._sealer = sealer

    def read(self, name: str) -> bytes | None:
        """What was kept under a name."""
        try:
            data = (self._folder / name).read_bytes()
            return data if data[:1] >= b" " else self._sealer.open(data, row=self._row(name))
        except (OSError, StoreError):
            return None

    def write(self, name: str, data: bytes) -> None:
        """Keep a file whole or not at all, for its owner only."""
        # A full or read-only disk costs the next start some time, and nothing else.
        with suppress(OSError, StoreError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(self._sealer.seal(data, row=self._row(name)))
                Path(temporary).replace(self._folder / name)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise

    def remove(self, name: str) -> None:
        """Let a file go."""
        with suppress(OSError):
            (self._folder / name).unlink(missing_ok=True)

    def _row(self, name: str) -> str:
        return f"cache|{self._folder.name}|{name}"
