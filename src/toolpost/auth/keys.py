"""The master keys: where they are kept, which of them seals, and how a new one takes over."""

from __future__ import annotations

import hashlib
import secrets
import threading
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolpost.auth.key_places import KEY_BYTES, FileKeys, KeyPlace, KeyringKeys, KeyWrapper, WrappedKeys, alone
from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ID_BYTES = 8
KEY_FILE = "key"
WRAPPED_FILE = "key.wrapped"
WRAPPERS_GROUP = "toolpost.key_wrappers"


class MasterKey(NamedTuple):
    """One key, ready to seal and open; its id tells it from others and tells nothing of it."""

    id: bytes
    cipher: AESGCM


class _Known(NamedTuple):
    stamp: object
    keys: dict[bytes, MasterKey]
    newest: MasterKey


class MasterKeys:
    """The newest key seals, all of them open; what another process changed is noticed before the next sealing."""

    def __init__(self, place: KeyPlace) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._known: _Known | None = None

    @property
    def name(self) -> str:
        """Where the keys are, as people are told."""
        return self._place.name

    def newest(self) -> MasterKey:
        """The key that seals."""
        known = self._known
        if known is None or self._place.stamp() not in (None, known.stamp):
            known = self._load()
        return known.newest

    def find(self, id: bytes) -> MasterKey | None:
        """A key by its id; one that is not known may have been made by another process."""
        known = self._known
        if known is None or id not in known.keys:
            known = self._load()
        return known.keys.get(id)

    def all(self) -> list[MasterKey]:
        """Every key, the oldest first."""
        return list((self._known or self._load()).keys.values())

    def rotate(self) -> str:
        """Make a new key, which seals from now on; the older ones go on opening. Gives its id."""
        with alone(self._place.folder):
            self._place.write([*self._first_or_read(), secrets.token_bytes(KEY_BYTES)])
        return self._load().newest.id.hex()

    def retire(self) -> list[str]:
        """Forget all keys but the newest, and give their ids: what only they open is lost, so seal it anew before."""
        with alone(self._place.folder):
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
                with alone(self._place.folder):
                    raw = self._first_or_read()
                stamp = self._place.stamp()
            keys = [MasterKey(key_id(key), AESGCM(key)) for key in raw]
            self._known = _Known(stamp, {key.id: key for key in keys}, keys[-1])
            return self._known

    def _first_or_read(self) -> list[bytes]:
        """The keys, of which there is at least one now."""
        found = self._place.read()
        if found:
            return found
        self._place.write([secrets.token_bytes(KEY_BYTES)], first=True)
        return self._place.read()


def key_id(key: bytes) -> bytes:
    """What tells keys apart: a hash, and keys are too random for it to lead back."""
    return hashlib.sha256(b"toolpost key id\0" + key).digest()[:ID_BYTES]


def keys_from(reference: str, *, folder: Path) -> MasterKeys:
    """The keys that a reference leads to: `file`, `file:PATH`, `keyring:SERVICE/NAME` or `kms:PLUG-IN`."""
    return MasterKeys(key_place(reference, folder=folder))


def key_place(reference: str, *, folder: Path) -> KeyPlace:
    """Where a reference leads; ConfigError when it is none. `folder` is where the stores are."""
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
            said = f"{reference!r} names no key; write file, file:PATH, keyring:SERVICE/NAME or kms:PLUG-IN"
            raise ConfigError(said, code="key_unknown")


def key_wrapper(name: str) -> KeyWrapper:
    """The key service that an installed plug-in offers under this name: an object, or a function that makes one."""
    points = {point.name: point for point in entry_points(group=WRAPPERS_GROUP)}
    if name not in points:
        have = ", ".join(sorted(points)) or "none"
        said = f"no plug-in offers the key service {name!r} ({WRAPPERS_GROUP}: {have}); install it, or use file"
        raise ConfigError(said, code="key_unknown")
    offered: Any = points[name].load()
    wrapper = offered() if callable(offered) else offered
    if not callable(getattr(wrapper, "wrap", None)) or not callable(getattr(wrapper, "unwrap", None)):
        said = f"plug-in {name!r} ({points[name].value}) offers no key service: it needs wrap() and unwrap()"
        raise ConfigError(said, code="key_unknown")
    return cast("KeyWrapper", wrapper)


def move_keys(source: KeyPlace, target: KeyPlace) -> int:
    """Keep all keys of one place in another too, so that what they sealed still opens; the target's own stay newest."""
    with alone(target.folder):
        own = target.read()
        moved = [key for key in source.read() if key not in own]
        if moved:
            target.write([*moved, *own])
    return len(moved)
