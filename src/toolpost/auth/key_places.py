"""The places where master keys are kept: a file, a file that a key service wraps, the keyring of the system."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import secrets
import stat
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Protocol

from toolpost.auth.secret import keyring_text, no_keyring
from toolpost.contracts.errors import StoreError

KEY_BYTES = 32
_KEYRING_GLANCE_S = 30.0  # asking a keyring costs milliseconds


class KeyWrapper(Protocol):
    """A key service, as a plug-in offers it: wraps keys with one that never leaves the service."""

    def wrap(self, key: bytes) -> bytes:
        """The key, such that only `unwrap` gives it."""
        ...

    def unwrap(self, wrapped: bytes) -> bytes:
        """The key that was wrapped; raises when this service did not wrap it."""
        ...


class KeyPlace(Protocol):
    """Where master keys are kept, the oldest first."""

    @property
    def name(self) -> str:
        """The place, as people are told of it."""
        ...

    @property
    def folder(self) -> Path:
        """What is locked while keys change."""
        ...

    def stamp(self) -> object:
        """Cheap to ask: another value when the keys may have changed, None when it cannot be told."""
        ...

    def read(self) -> list[bytes]:
        """All keys; none when none was made yet. StoreError says why they cannot be read."""
        ...

    def write(self, keys: Sequence[bytes], *, first: bool = False) -> None:
        """Keep these keys durably; with `first` only if there are none."""
        ...


class FileKeys:
    """Keys in a file that only its owner can read: 32 bytes each, one behind the other."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def name(self) -> str:
        return str(self._path)

    @property
    def folder(self) -> Path:
        return self._path.parent

    def stamp(self) -> object:
        return _stamp(str(self._path))

    def read(self) -> list[bytes]:
        raw = _read_private(self._path)
        if raw is None:
            return []
        if not raw or len(raw) % KEY_BYTES:
            raise StoreError(f"the key {self._path} is damaged: {len(raw)} bytes instead of {KEY_BYTES} for each key")
        return _cut(raw)

    def write(self, keys: Sequence[bytes], *, first: bool = False) -> None:
        _write_private(self._path, b"".join(keys), first=first)


class WrappedKeys:
    """Keys in a file, wrapped by a key service: without the service the file opens nothing."""

    def __init__(self, path: Path, wrapper: KeyWrapper) -> None:
        self._path = path
        self._wrapper = wrapper

    @property
    def name(self) -> str:
        return str(self._path)

    @property
    def folder(self) -> Path:
        return self._path.parent

    def stamp(self) -> object:
        return _stamp(str(self._path))

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
        _write_private(self._path, json.dumps({"wrapped": wrapped}).encode(), first=first)

    def _ask(self, deed: str, data: bytes) -> bytes:
        try:
            answer: bytes = getattr(self._wrapper, deed)(data)
        except Exception as error:
            said = f"the key service did not {deed} a key of {self._path}: {type(error).__name__}"
            raise StoreError(f"{said}; look at the service and at our rights there", cause=error) from error
        if deed == "unwrap" and len(answer) != KEY_BYTES:
            raise StoreError(f"the key service gave {len(answer)} bytes instead of {KEY_BYTES} for {self._path}")
        return answer


class KeyringKeys:
    """Keys in the keyring of the operating system, as one password."""

    def __init__(self, service: str, name: str, *, folder: Path) -> None:
        self._service = service
        self._name = name
        self._folder = folder

    @property
    def name(self) -> str:
        return f"keyring:{self._service}/{self._name}"

    @property
    def folder(self) -> Path:
        return self._folder

    def stamp(self) -> object:
        return int(time.monotonic() / _KEYRING_GLANCE_S)

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
    """What a file holds that only its owner can read; None when it is not there."""
    try:
        with path.open("rb") as file:
            mode, raw = os.fstat(file.fileno()).st_mode, file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from error
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise StoreError(f"the key {path} can be read by others; run: chmod 600 {path}")
    return raw


def _write_private(path: Path, data: bytes, *, first: bool) -> None:
    """Write aside and put it into place whole; of two who write the first at once, one wins and both read that."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if first:
            with contextlib.suppress(FileExistsError):
                os.link(aside, path)
        else:
            aside.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _unusable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def _unusable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"the key {path} cannot be read or made: {error.strerror}", cause=error)


def _sync_folder(path: Path) -> None:
    """Nothing may be sealed with a key whose name could be lost in a power cut; Windows cannot and need not."""
    with contextlib.suppress(PermissionError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def alone(folder: Path) -> Generator[None]:
    """Hold the folder's lock, which the kernel lets go when we die; Windows has none for folders."""
    if sys.platform == "win32":
        yield
        return
    import fcntl  # noqa: PLC0415 - not on Windows

    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
