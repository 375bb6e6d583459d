"""JSON documents sealed to the row they stand in, so that a row given to another user does not open."""

from __future__ import annotations

import json
from typing import Any

from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import Sealer


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
