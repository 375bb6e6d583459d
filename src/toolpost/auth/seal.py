"""Seals what must be kept exactly, with a key in a file that only its owner can read."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import TYPE_CHECKING

from toolpost.contracts.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_VERSION = b"\x01"
_KEY_BYTES = 32
_NONCE_BYTES = 12


class FileSealer:
    """AES-256-GCM with the row's identity as associated data: a row moved elsewhere does not open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cipher: AESGCM | None = None

    def seal(self, data: bytes, *, row: str) -> bytes:
        """Encrypt `data`, bound to the identity of its row."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _VERSION + nonce + self._ready().encrypt(nonce, data, row.encode())

    def open(self, sealed: bytes, *, row: str) -> bytes:
        """Decrypt; StoreError when the row or the key is another."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - loaded when something is first sealed

        if sealed[:1] != _VERSION:
            raise StoreError(f"sealed data of {row.partition('|')[0]!r} is of an unknown version; upgrade toolpost")
        nonce, body = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            return self._ready().decrypt(nonce, body, row.encode())
        except (InvalidTag, ValueError):  # ValueError: too short to hold a nonce
            kind = row.partition("|")[0]
            msg = f"sealed data of {kind!r} does not open: another key than {self._path}, or it was moved or changed"
            raise StoreError(msg) from None

    def _ready(self) -> AESGCM:
        if self._cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above

            self._cipher = AESGCM(self._key())
        return self._cipher

    def _key(self) -> bytes:
        try:
            if not self._path.exists():
                self._make()
            mode = self._path.stat().st_mode
            key = self._path.read_bytes()
        except OSError as error:
            raise StoreError(f"the key {self._path} cannot be read or made: {error.strerror}") from error
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            raise StoreError(f"the key {self._path} can be read by others; run: chmod 600 {self._path}")
        if len(key) != _KEY_BYTES:
            raise StoreError(f"the key {self._path} is damaged: {len(key)} bytes instead of {_KEY_BYTES}")
        return key

    def _make(self) -> None:
        """Write a new key aside and link it into place: of two processes at once, the first wins and both read it."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        aside = self._path.with_name(f"{self._path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            os.link(aside, self._path)
            _sync_folder(self._path.parent)
        except FileExistsError:
            return
        finally:
            aside.unlink()


def _sync_folder(path: Path) -> None:
    """Nothing may be sealed with a key whose name could be lost in a power cut; Windows cannot and need not."""
    with contextlib.suppress(PermissionError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
