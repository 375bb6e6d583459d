"""Seals what must be kept exactly with the newest master key, and opens what any of them sealed."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from toolpost.auth.key_places import FileKeys
from toolpost.auth.keys import ID_BYTES, MasterKey, MasterKeys
from toolpost.contracts.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

UNREADABLE = "row_unreadable"  # the row alone is at fault: it was moved or changed, or its key is gone
_NAMELESS = b"\x01"  # sealed before keys had ids: nonce and text follow, the row alone is associated
_NAMED = b"\x02"  # the key's id, nonce and text follow; version, id and row are associated
_HEADER_BYTES = 1 + ID_BYTES
_NONCE_BYTES = 12


class KeySealer:
    """AES-256-GCM with the row's identity as associated data: a row moved elsewhere does not open."""

    def __init__(self, keys: MasterKeys) -> None:
        self.keys = keys

    def mark(self) -> bytes:
        """How all that is sealed now begins; what begins otherwise was sealed with an older key."""
        return _NAMED + self.keys.newest().id

    def knows(self, sealed: bytes) -> bool:
        """Whether the key that sealed it is here, as far as its beginning tells."""
        if sealed[:1] == _NAMELESS:
            return True
        return sealed[:1] == _NAMED and self.keys.find(sealed[1:_HEADER_BYTES]) is not None

    def seal(self, data: bytes, *, row: str) -> bytes:
        """Encrypt `data`, bound to the identity of its row."""
        key = self.keys.newest()
        header, nonce = _NAMED + key.id, secrets.token_bytes(_NONCE_BYTES)
        return header + nonce + key.cipher.encrypt(nonce, data, header + row.encode())

    def open(self, sealed: bytes, *, row: str) -> bytes:
        """Decrypt; StoreError when the row or the key is another."""
        if sealed[:1] == _NAMED:
            header, body = sealed[:_HEADER_BYTES], sealed[_HEADER_BYTES:]
            key = self.keys.find(header[1:])
            return self._decrypt(body, keys=[key] if key else [], associated=header + row.encode(), row=row)
        if sealed[:1] == _NAMELESS:
            return self._decrypt(sealed[1:], keys=self.keys.all(), associated=row.encode(), row=row)
        said = f"sealed data of {row.partition('|')[0]!r} is of an unknown version; upgrade toolpost"
        raise StoreError(said, code=UNREADABLE)

    def rotate(self) -> None:
        """Create a key that seals from now on; the older ones go on opening."""
        self.keys.rotate()

    def retire(self) -> None:
        """Delete all keys but the newest: what only they open is lost."""
        self.keys.retire()

    def _decrypt(self, body: bytes, *, keys: Sequence[MasterKey], associated: bytes, row: str) -> bytes:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - loaded when something is first opened

        nonce, text = body[:_NONCE_BYTES], body[_NONCE_BYTES:]
        for key in keys:
            try:
                return key.cipher.decrypt(nonce, text, associated)
            except (InvalidTag, ValueError):  # ValueError: too short to hold a nonce
                continue
        kind, where = row.partition("|")[0], self.keys.name
        msg = f"sealed data of {kind!r} does not open: another key than {where}, or it was moved or changed"
        raise StoreError(msg, code=UNREADABLE)


class FileSealer(KeySealer):
    """Seals with the keys in one file, made when there is none."""

    def __init__(self, path: Path) -> None:
        super().__init__(MasterKeys(FileKeys(path)))
