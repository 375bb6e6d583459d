"""Master keys: rotation, and encryption of rows with them (AES-256-GCM)."""

from __future__ import annotations

import hashlib
import secrets
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, overload

from toolpost.auth.key_storage import KEY_BYTES, FileKeys, KeyStorage, key_storage
from toolpost.contracts.errors import StoreError
from toolpost.stores.durable_files import folder_lock

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ID_BYTES = 8
UNREADABLE = "row_unreadable"  # one row is affected: it was moved or changed, or its key was deleted
_VERSION = b"\x02"  # the key's ID, nonce and ciphertext follow; version, ID and row are associated data
_HEADER_BYTES = 1 + ID_BYTES
_NONCE_BYTES = 12


class MasterKey(NamedTuple):
    """A key with its cipher; the ID does not reveal the key."""

    id: bytes
    cipher: AESGCM


class _Known(NamedTuple):
    stamp: object
    keys: dict[bytes, MasterKey]
    newest: MasterKey


class MasterKeys:
    """Master keys: the newest encrypts, all decrypt; changes by other processes apply to the next encryption."""

    def __init__(self, place: KeyStorage) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._known: _Known | None = None

    @property
    def name(self) -> str:
        """The storage of the keys, for messages."""
        return self._place.name

    def newest(self) -> MasterKey:
        """Return the key that encrypts."""
        key_set = self._known
        if key_set is None or self._place.stamp() not in (None, key_set.stamp):
            key_set = self._load()
        return key_set.newest

    def find(self, id: bytes) -> MasterKey | None:
        """Return a key by its ID; reload the keys if it is unknown, because another process may have created it.

        A missing first key is not created: it could not decrypt anything.
        """
        key_set = self._known
        if key_set is None or id not in key_set.keys:
            key_set = self._load(create=False)
        return None if key_set is None else key_set.keys.get(id)

    def all(self) -> list[MasterKey]:
        """Return every key, the oldest first."""
        return list((self._known or self._load()).keys.values())

    def is_missing(self) -> bool:
        """Return whether a key does not exist yet."""
        return self._known is None and not self._place.read()

    def rotate(self) -> str:
        """Create a key that encrypts from now on and return its ID; the older keys still decrypt.

        Keys that only the operator can change are read instead: the newest of them encrypts.
        """
        if not self._place.is_writable:
            return self.newest().id.hex()
        with folder_lock(self._place.folder):
            self._place.write([*self._first_or_read(), secrets.token_bytes(KEY_BYTES)])
        return self._load().newest.id.hex()

    def retire(self) -> list[str]:
        """Delete all keys except the newest and return their IDs. Data that was not re-encrypted is lost."""
        with folder_lock(self._place.folder):
            *older, newest = self._first_or_read()
            if older:
                self._place.write([newest])
        self._load()
        return [key_id(key).hex() for key in older]

    @overload
    def _load(self) -> _Known: ...

    @overload
    def _load(self, *, create: Literal[False]) -> _Known | None: ...

    def _load(self, *, create: bool = True) -> _Known | None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - loaded when first needed

        with self._lock:
            stamp = self._place.stamp()
            raw = self._place.read()
            if not raw and (self._known is not None or not create):
                return self._known  # deleted while in use: a new key could not decrypt anything
            if not raw:
                with folder_lock(self._place.folder):
                    raw = self._first_or_read()
                stamp = self._place.stamp()
            keys = [MasterKey(key_id(key), AESGCM(key)) for key in raw]
            self._known = _Known(stamp, {key.id: key for key in keys}, keys[-1])
            return self._known

    def _first_or_read(self) -> list[bytes]:
        """Return the keys; create the first one if there is none."""
        keys = self._place.read()
        if keys:
            return keys
        self._place.write([secrets.token_bytes(KEY_BYTES)], first=True)
        return self._place.read()


def key_id(key: bytes) -> bytes:
    """Return the hash that identifies a key."""
    return hashlib.sha256(b"toolpost key id\0" + key).digest()[:ID_BYTES]


def keys_from(reference: str, *, folder: Path) -> MasterKeys:
    """Return the keys of a reference: `file`, `file:PATH`, `env:NAME`, `keyring:SERVICE/NAME` or `kms:PLUG-IN`."""
    return MasterKeys(key_storage(reference, folder=folder))


class KeyCipher:
    """AES-256-GCM with the identity of the row as associated data: a moved row cannot be decrypted."""

    def __init__(self, keys: MasterKeys) -> None:
        self.keys = keys

    def describe_key(self) -> str:
        name = self.keys.name
        return f"that of {name}, which does not exist" if self.keys.is_missing() else f"that of {name}"

    def prefix(self) -> bytes:
        """Return the header of data encrypted now; data with another header was encrypted with an older key."""
        return _VERSION + self.keys.newest().id

    def knows(self, encrypted: bytes) -> bool:
        """Return whether the key in the header of the data exists."""
        return encrypted[:1] == _VERSION and self.keys.find(encrypted[1:_HEADER_BYTES]) is not None

    def encrypt(self, data: bytes, *, row: str) -> bytes:
        key = self.keys.newest()
        header, nonce = _VERSION + key.id, secrets.token_bytes(_NONCE_BYTES)
        return header + nonce + key.cipher.encrypt(nonce, data, header + row.encode())

    def decrypt(self, encrypted: bytes, *, row: str) -> bytes:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - loaded at the first decryption

        kind = row.partition("|")[0]
        if encrypted[:1] != _VERSION:
            raise StoreError(f"encrypted data of {kind!r} is of an unknown version; upgrade toolpost", code=UNREADABLE)
        header, body = encrypted[:_HEADER_BYTES], encrypted[_HEADER_BYTES:]
        key = self.keys.find(header[1:])
        if key is not None:
            with suppress(InvalidTag, ValueError):  # ValueError: too short for a nonce
                return key.cipher.decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], header + row.encode())
        reason = f"it was encrypted with another key than {self.keys.name}, or was moved or changed"
        raise StoreError(f"encrypted data of {kind!r} cannot be decrypted: {reason}", code=UNREADABLE)

    def rotate(self) -> None:
        self.keys.rotate()

    def retire(self) -> None:
        self.keys.retire()


class FileCipher(KeyCipher):
    """Cipher with the keys in one file, which is created if missing."""

    def __init__(self, path: Path) -> None:
        super().__init__(MasterKeys(FileKeys(path)))
