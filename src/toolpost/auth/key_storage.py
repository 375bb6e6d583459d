"""Storage of master keys: a private file, a variable, the system keyring, or a file wrapped by a key service."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, cast

from toolpost.auth.secret import keyring_text, no_keyring
from toolpost.contracts.errors import ConfigError, StoreError
from toolpost.stores.durable_files import read_private, write_private

KEY_BYTES = 32
_KEYRING_CHECK_S = 30.0  # because reading a keyring takes milliseconds
KEY_FILE = "key"
WRAPPED_FILE = "key.wrapped"
WRAPPERS_GROUP = "toolpost.key_wrappers"


class KeyWrapper(Protocol):
    """Key service of a plug-in: wraps keys with a key that never leaves the service."""

    def wrap(self, key: bytes) -> bytes:
        """Return the key encrypted so that only `unwrap` returns it."""
        ...

    def unwrap(self, wrapped: bytes) -> bytes:
        """Return a wrapped key; raise if this service did not wrap it."""
        ...


class KeyStorage(Protocol):
    """Storage of master keys, the oldest first."""

    @property
    def name(self) -> str:
        """The place of the keys, for messages."""
        ...

    @property
    def folder(self) -> Path:
        """The folder that is locked while keys change."""
        ...

    @property
    def is_writable(self) -> bool:
        """Whether this program stores new keys; otherwise the operator does."""
        ...

    def stamp(self) -> object:
        """Return a cheap value that changes with the keys, or None if it is unknown."""
        ...

    def read(self) -> list[bytes]:
        """Return all keys, oldest first; raise StoreError if they cannot be read."""
        ...

    def write(self, keys: Sequence[bytes], *, first: bool = False) -> None:
        """Store these keys durably; with `first`, only if there are none."""
        ...


class FileKeys:
    """Keys in a file that only its owner can read: 32 bytes each, concatenated."""

    is_writable = True

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.folder = path.parent
        self._path = path

    def stamp(self) -> object:
        return _stamp(self._path)

    def read(self) -> list[bytes]:
        raw = read_private(self._path)
        if raw is None:
            return []
        if not raw or len(raw) % KEY_BYTES:
            raise StoreError(f"the key {self._path} is damaged: {len(raw)} bytes instead of {KEY_BYTES} for each key")
        return _cut(raw)

    def write(self, keys: Sequence[bytes], *, first: bool = False) -> None:
        write_private(self._path, b"".join(keys), first=first)


class WrappedKeys:
    """Keys in a file, wrapped by a key service: without the service the file is useless."""

    is_writable = True

    def __init__(self, path: Path, wrapper: KeyWrapper) -> None:
        self.name = str(path)
        self.folder = path.parent
        self._path = path
        self._wrapper = wrapper

    def stamp(self) -> object:
        return _stamp(self._path)

    def read(self) -> list[bytes]:
        raw = read_private(self._path)
        if raw is None:
            return []
        try:
            wrapped = [base64.b64decode(text, validate=True) for text in json.loads(raw)["wrapped"]]
        except (ValueError, KeyError, TypeError):
            raise StoreError(f"the wrapped keys {self._path} are damaged; restore them from a backup") from None
        return [self._use_service("unwrap", each) for each in wrapped]

    def write(self, keys: Sequence[bytes], *, first: bool = False) -> None:
        wrapped = [base64.b64encode(self._use_service("wrap", key)).decode() for key in keys]
        write_private(self._path, json.dumps({"wrapped": wrapped}).encode(), first=first)

    def _use_service(self, method: str, data: bytes) -> bytes:
        try:
            answer: bytes = getattr(self._wrapper, method)(data)
        except Exception as error:
            message = f"the key service did not {method} a key of {self._path}: {type(error).__name__}"
            raise StoreError(f"{message}; check the service and your permissions there", cause=error) from error
        if method == "unwrap" and len(answer) != KEY_BYTES:
            raise StoreError(f"the key service returned {len(answer)} bytes instead of {KEY_BYTES} for {self._path}")
        return answer


class KeyringKeys:
    """Keys in the keyring of the operating system, as one password."""

    is_writable = True

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
            return _cut(_decode(text))
        except ValueError:
            raise StoreError(f"the key {self.name} is damaged; restore it from a backup") from None

    def write(self, keys: Sequence[bytes], *, first: bool = False) -> None:
        try:
            import keyring  # noqa: PLC0415 - optional, and slow to load
            import keyring.errors  # noqa: PLC0415 - as above
        except ImportError as error:
            raise no_keyring(error) from error
        try:
            keyring.set_password(self._service, self._name, base64.b64encode(b"".join(keys)).decode())
        except keyring.errors.KeyringError as error:
            raise StoreError(f"the key {self.name} cannot be stored: {type(error).__name__}", cause=error) from error


class VariableKeys:
    """Keys in an environment variable that the operator sets: in base64, several separated by commas."""

    is_writable = False

    def __init__(self, name: str, *, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.name = f"env:{name}"
        self.folder = folder
        self._variable = name
        self._environ = os.environ if environ is None else environ

    def stamp(self) -> object:
        return None

    def read(self) -> list[bytes]:
        text = self._environ.get(self._variable)
        if not text:
            fault = "is not set" if text is None else "is empty"
            message = f"the encryption key is missing: the environment variable {self._variable!r} {fault}"
            raise ConfigError(
                f"{message}; put the key into it, or for a new database that of `openssl rand -base64 32`",
                code="secret_missing",
            )
        try:
            raw = b"".join(_decode(part) for part in text.split(","))
        except ValueError:
            message = f"the environment variable {self._variable!r} is not a key: it must be 32 bytes in base64"
            raise StoreError(f"{message}, or several such keys, oldest first, separated by commas") from None
        return _cut(raw)

    def write(self, keys: Sequence[bytes], *, first: bool = False) -> None:
        raise StoreError(
            f"the keys are in the environment variable {self._variable!r}, which only you can change; "
            "to remove older keys, keep the last one of its list, and restart every process"
        )


def _decode(text: str) -> bytes:
    """Decode keys in base64; ValueError if they are not whole keys."""
    raw = base64.b64decode(text.strip(), validate=True)
    if not raw or len(raw) % KEY_BYTES:
        raise ValueError("not a key")
    return raw


def _cut(raw: bytes) -> list[bytes]:
    return [raw[start : start + KEY_BYTES] for start in range(0, len(raw), KEY_BYTES)]


def _stamp(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def key_storage(reference: str, *, folder: Path) -> KeyStorage:
    """Return the key storage of a reference, or raise ConfigError; `folder` is the data folder."""
    kind, _, rest = reference.partition(":")
    service, _, name = rest.rpartition("/")
    match kind:
        case "file":
            return FileKeys(Path(rest).expanduser() if rest else folder / KEY_FILE)
        case "env" if rest:
            return VariableKeys(rest, folder=folder)
        case "keyring" if service and name:
            return KeyringKeys(service, name, folder=folder)
        case "kms" if rest:
            return WrappedKeys(folder / WRAPPED_FILE, key_wrapper(rest))
        case _:
            message = f"{reference!r} names no key; use file, file:PATH, env:NAME, keyring:SERVICE/NAME or kms:PLUG-IN"
            raise ConfigError(message, code="key_unknown")


def key_wrapper(name: str) -> KeyWrapper:
    """Return the key service of an installed plug-in: an object, or a function that creates one."""
    points = {point.name: point for point in entry_points(group=WRAPPERS_GROUP)}
    if name not in points:
        have = ", ".join(sorted(points)) or "none"
        message = f"no plug-in provides the key service {name!r} ({WRAPPERS_GROUP}: {have}); install it, or use file"
        raise ConfigError(message, code="key_unknown")
    offered: Any = points[name].load()
    wrapper = offered() if callable(offered) else offered
    if not callable(getattr(wrapper, "wrap", None)) or not callable(getattr(wrapper, "unwrap", None)):
        message = f"plug-in {name!r} ({points[name].value}) is not a key service: it needs wrap() and unwrap()"
        raise ConfigError(message, code="key_unknown")
    return cast("KeyWrapper", wrapper)
