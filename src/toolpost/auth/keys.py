"""Master keys: where they are stored, how they rotate, and sealing of rows with them (AES-256-GCM)."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import secrets
import stat
import sys
import threading
import time
from collections.abc import Generator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from toolpost.auth.secret import keyring_text, no_keyring
from toolpost.contracts.errors import ConfigError, StoreError
from toolpost.files.durable import make_private_folder, sync_folder, write_synced

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
_KEYRING_CHECK_S = 30.0  # asking a keyring costs milliseconds
ID_BYTES = 8
KEY_FILE = "key"
WRAPPED_FILE = "key.wrapped"
WRAPPERS_GROUP = "toolpost.key_wrappers"
UNREADABLE = "row_unreadable"  # the row alone is at fault: it was moved or changed, or its key is gone
_NAMELESS = b"\x01"  # sealed before keys had ids: nonce and text follow, the row alone is associated
_NAMED = b"\x02"  # the key's id, nonce and text follow; version, id and row are associated
_HEADER_BYTES = 1 + ID_BYTES
_NONCE_BYTES = 12


class KeyWrapper(Protocol):
    """Key service of a plug-in: wraps keys with one that never leaves the service."""

    def wrap(self, key: bytes) -> bytes:
        """Return the key encrypted so that only `unwrap` returns it."""
        ...

    def unwrap(self, wrapped: bytes) -> bytes:
        """Return a wrapped key; raises when this service did not wrap it."""
        ...


class KeyStorage(Protocol):
    """Storage of master keys, the oldest first."""

    @property
    def name(self) -> str:
        """The place, as messages name it."""
        ...

    @property
    def folder(self) -> Path:
        """The folder that is locked while keys change."""
        ...

    def stamp(self) -> object:
        """Return a cheap value that changes with the keys; None when that cannot be told."""
        ...

    def read(self) -> list[bytes]:
        """Return all keys; none when none was created yet. StoreError says why they cannot be read."""
        ...

    def write(self, keys: Sequence[bytes], *, first: bool = False) -> None:
        """Store these keys durably; with `first` only if there are none."""
        ...


class FileKeys:
    """Keys in a file that only its owner can read: 32 bytes each, concatenated."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.folder = path.parent
        self._path = path

    def stamp(self) -> object:
        return _stamp(self.name)

    def read(self) -> list[bytes]:
        raw = _read_private(self._path)
        if raw is None:
            return []
        if not raw or len(raw) % KEY_BYTES:
            raise StoreError(f"the key {self._path} is damaged: {len(raw)} bytes instead of {KEY_BYTES} for each key")
        return _cut(raw)

    def write(self, keys: Sequence[bytes], *, first: bool = False) -> None:
        write_private(self._path, b"".join(keys), first=first)


class WrappedKeys:
    """Keys in a file, wrapped by a key service: without the service the file opens nothing."""

    def __init__(self, path: Path, wrapper: KeyWrapper) -> None:
        self.name = str(path)
        self.folder = path.parent
        self._path = path
        self._wrapper = wrapper

    def stamp(self) -> object:
        return _stamp(self.name)

    def read(self) -> list[bytes]:
        raw = _read_private(self._path)
        if raw is None:
            return []
        try:
            wrapped = [base64.b64decode(text, validate=True) for text in json.loads(raw)["wrapped"]]
        except (ValueError, KeyError, TypeError):
            raise StoreError(f"the wrapped keys {self._path} are damaged; restore them from a backup") from None
        return [self._ask("unwrap", each) for each in wrapped]

    def write(self, keys: Sequence[bytes], *, first: bool = False) -> None:
        wrapped = [base64.b64encode(self._ask("wrap", key)).decode() for key in keys]
        write_private(self._path, json.dumps({"wrapped": wrapped}).encode(), first=first)

    def _ask(self, deed: str, data: bytes) -> bytes:
        try:
            answer: bytes = getattr(self._wrapper, deed)(data)
        except Exception as error:
            message = f"the key service did not {deed} a key of {self._path}: {type(error).__name__}"
            raise StoreError(f"{message}; look at the service and at our rights there", cause=error) from error
        if deed == "unwrap" and len(answer) != KEY_BYTES:
            raise StoreError(f"the key service gave {len(answer)} bytes instead of {KEY_BYTES} for {self._path}")
        return answer


class KeyringKeys:
    """Keys in the keyring of the operating system, as one password."""

    def __init__(self, service: str, name: str, *, folder: Path) -> None:
        self.name = f"keyring:{service}/{name}"
        self.folder = folder
        self._service = service
        self._name = name

    def stamp(self) -> object:
        return int(time.monotonic() / _KEYRING_CHECK_S)

    def read(self) -> list[bytes]:
        text = keyring_text(self._service, self._name)
        if text is None:
            return []
        try:
            raw = base64.b64decode(text, validate=True)
        except binascii.Error:
            raw = b""
        if not raw or len(raw) % KEY_BYTES:
            raise StoreError(f"the key {self.name} is damaged; restore it from a backup")
        return _cut(raw)

    def write(self, keys: Sequence[bytes], *, first: bool = False) -> None:
        try:
            import keyring  # noqa: PLC0415 - optional, and slow to load
            import keyring.errors  # noqa: PLC0415 - as above
        except ImportError as error:
            raise no_keyring(error) from error
        try:
            keyring.set_password(self._service, self._name, base64.b64encode(b"".join(keys)).decode())
        except keyring.errors.KeyringError as error:
            raise StoreError(f"the key {self.name} cannot be kept: {type(error).__name__}", cause=error) from error


def _cut(raw: bytes) -> list[bytes]:
    return [raw[start : start + KEY_BYTES] for start in range(0, len(raw), KEY_BYTES)]


def _stamp(path: str) -> object:
    try:
        status = os.stat(path)  # noqa: PTH116 - asked before every sealing, and twice as fast
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read_private(path: Path) -> bytes | None:
    """Return the content of a file that only its owner can read; None when there is none."""
    try:
        with path.open("rb") as file:
            mode, raw = os.fstat(file.fileno()).st_mode, file.read()
    except FileNotFoundError:
        refuse_dangling(path)
        return None
    except OSError as error:
        raise _unusable(path, error) from error
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise StoreError(f"the key {path} can be read by others; run: chmod 600 {path}")
    return raw


def refuse_dangling(path: Path) -> None:
    """Raise StoreError where a private file is a link to a file that does not exist."""
    if path.is_symlink():
        raise StoreError(
            f"{path} is a link to {os.readlink(path)}, which does not exist; restore that file, or remove the link if "  # noqa: PTH115 - as it is written
            "nothing was sealed with it yet"
        )


def write_private(path: Path, data: bytes, *, first: bool) -> None:
    """Write a file and move it into place; of two first writers one wins, and both read that file."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        make_private_folder(path.parent)
        write_synced(aside, [data])
        if first:
            with contextlib.suppress(FileExistsError):
                os.link(aside, path)
        else:
            aside.replace(path)
        sync_folder(path.parent)  # a key whose name is lost in a power cut opens nothing
    except OSError as error:
        raise _unusable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def _unusable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"the key {path} cannot be read or made: {error.strerror}", cause=error)


@contextlib.contextmanager
def folder_lock(folder: Path) -> Generator[None]:
    """Hold the lock of a folder, which the kernel releases when the process dies; Windows has none for folders."""
    if sys.platform == "win32":
        yield
        return
    import fcntl  # noqa: PLC0415 - not on Windows

    try:
        make_private_folder(folder)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class MasterKey(NamedTuple):
    """One key, ready to seal and open; its id reveals nothing of it."""

    id: bytes
    cipher: AESGCM


class _Known(NamedTuple):
    stamp: object
    keys: dict[bytes, MasterKey]
    newest: MasterKey


class MasterKeys:
    """Master keys: the newest seals, all open. Changes by other processes are noticed before the next sealing."""

    def __init__(self, place: KeyStorage) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._known: _Known | None = None

    @property
    def name(self) -> str:
        """The place of the keys, as messages name it."""
        return self._place.name

    def newest(self) -> MasterKey:
        """Return the key that seals."""
        key_set = self._known
        if key_set is None or self._place.stamp() not in (None, key_set.stamp):
            key_set = self._load()
        return key_set.newest

    def find(self, id: bytes) -> MasterKey | None:
        """Return a key by its id; an unknown one may have been created by another process."""
        key_set = self._known
        if key_set is None or id not in key_set.keys:
            key_set = self._load()
        return key_set.keys.get(id)

    def all(self) -> list[MasterKey]:
        """Return every key, the oldest first."""
        return list((self._known or self._load()).keys.values())

    def rotate(self) -> str:
        """Create a key that seals from now on and return its id; the older ones go on opening."""
        with folder_lock(self._place.folder):
            self._place.write([*self._first_or_read(), secrets.token_bytes(KEY_BYTES)])
        return self._load().newest.id.hex()

    def retire(self) -> list[str]:
        """Delete all keys but the newest and return their ids: what only they open is lost, so seal it anew before."""
        with folder_lock(self._place.folder):
            *older, newest = self._first_or_read()
            if older:
                self._place.write([newest])
        self._load()
        return [key_id(key).hex() for key in older]

    def _load(self) -> _Known:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - loaded when first needed

        with self._lock:
            stamp = self._place.stamp()
            raw = self._place.read()
            if not raw and self._known is not None:  # It vanished under our hands; another key would open nothing.
                return self._known
            if not raw:
                with folder_lock(self._place.folder):
                    raw = self._first_or_read()
                stamp = self._place.stamp()
            keys = [MasterKey(key_id(key), AESGCM(key)) for key in raw]
            self._known = _Known(stamp, {key.id: key for key in keys}, keys[-1])
            return self._known

    def _first_or_read(self) -> list[bytes]:
        """Return the keys, after creating the first one if there is none."""
        keys = self._place.read()
        if keys:
            return keys
        self._place.write([secrets.token_bytes(KEY_BYTES)], first=True)
        return self._place.read()


def key_id(key: bytes) -> bytes:
    """Return the hash that identifies a key."""
    return hashlib.sha256(b"toolpost key id\0" + key).digest()[:ID_BYTES]


def keys_from(reference: str, *, folder: Path) -> MasterKeys:
    """Return the keys of a reference: `file`, `file:PATH`, `keyring:SERVICE/NAME` or `kms:PLUG-IN`."""
    return MasterKeys(key_storage(reference, folder=folder))


def key_storage(reference: str, *, folder: Path) -> KeyStorage:
    """Return the key storage of a reference; ConfigError when it is none. `folder` is where the stores are."""
    kind, _, rest = reference.partition(":")
    service, _, name = rest.rpartition("/")
    match kind:
        case "file":
            return FileKeys(Path(rest).expanduser() if rest else folder / KEY_FILE)
        case "keyring" if service and name:
            return KeyringKeys(service, name, folder=folder)
        case "kms" if rest:
            return WrappedKeys(folder / WRAPPED_FILE, key_wrapper(rest))
        case _:
            message = f"{reference!r} names no key; write file, file:PATH, keyring:SERVICE/NAME or kms:PLUG-IN"
            raise ConfigError(message, code="key_unknown")


def key_wrapper(name: str) -> KeyWrapper:
    """Return the key service of an installed plug-in: an object, or a function that creates one."""
    points = {point.name: point for point in entry_points(group=WRAPPERS_GROUP)}
    if name not in points:
        have = ", ".join(sorted(points)) or "none"
        message = f"no plug-in offers the key service {name!r} ({WRAPPERS_GROUP}: {have}); install it, or use file"
        raise ConfigError(message, code="key_unknown")
    offered: Any = points[name].load()
    wrapper = offered() if callable(offered) else offered
    if not callable(getattr(wrapper, "wrap", None)) or not callable(getattr(wrapper, "unwrap", None)):
        message = f"plug-in {name!r} ({points[name].value}) offers no key service: it needs wrap() and unwrap()"
        raise ConfigError(message, code="key_unknown")
    return cast("KeyWrapper", wrapper)


class KeySealer:
    """AES-256-GCM with the row's identity as associated data: a row moved elsewhere does not open."""

    def __init__(self, keys: MasterKeys) -> None:
        self.keys = keys

    def mark(self) -> bytes:
        """Return the header of data sealed now; data with another header was sealed with an older key."""
        return _NAMED + self.keys.newest().id

    def knows(self, sealed: bytes) -> bool:
        """Return whether the key that sealed the data is here, by its header."""
        if sealed[:1] == _NAMELESS:
            return True
        return sealed[:1] == _NAMED and self.keys.find(sealed[1:_HEADER_BYTES]) is not None

    def seal(self, data: bytes, *, row: str) -> bytes:
        key = self.keys.newest()
        header, nonce = _NAMED + key.id, secrets.token_bytes(_NONCE_BYTES)
        return header + nonce + key.cipher.encrypt(nonce, data, header + row.encode())

    def open(self, sealed: bytes, *, row: str) -> bytes:
        if sealed[:1] == _NAMED:
            header, body = sealed[:_HEADER_BYTES], sealed[_HEADER_BYTES:]
            key = self.keys.find(header[1:])
            return self._decrypt(body, keys=[key] if key else [], associated=header + row.encode(), row=row)
        if sealed[:1] == _NAMELESS:
            return self._decrypt(sealed[1:], keys=self.keys.all(), associated=row.encode(), row=row)
        message = f"sealed data of {row.partition('|')[0]!r} is of an unknown version; upgrade toolpost"
        raise StoreError(message, code=UNREADABLE)

    def rotate(self) -> None:
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
    """Seal with the keys in one file, created when there is none."""

    def __init__(self, path: Path) -> None:
        super().__init__(MasterKeys(FileKeys(path)))
