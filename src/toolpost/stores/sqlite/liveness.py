"""Liveness of processes: each locks its own file, and the kernel releases the lock when the process ends."""

from __future__ import annotations

import contextlib
import os
import platform
from importlib.metadata import version
from pathlib import Path
from weakref import WeakSet

import msgspec

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.errors import StoreError
from toolpost.contracts.store_status import OwnerStatus
from toolpost.stores.durable_files import try_lock

_FACTS_AT = 1  # Windows locks the first byte, which others then cannot read


class Liveness:
    """Holds a lock file that shows that this process is alive, and checks those of other processes.

    An owner without a file has ended: IDs are random and never reused. A forked child releases its parent's lock
    immediately, because it would otherwise keep the lock after the parent has ended.
    """

    def __init__(self, folder: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self.folder = folder
        self._random_bytes = clock.secret_bytes
        self._now = clock.wall
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            self.owner_id, self._descriptor = self._take()
        except OSError as exc:
            raise StoreError(
                f"data folder {str(folder.parent)!r} cannot be written: {exc.strerror}; "
                "give this user write permission or set data_dir to another folder",
                cause=exc,
            ) from exc
        _HELD.add(self)

    def alive(self, owner_id: str) -> bool:
        """Return whether the owner of an ID is alive; true if that cannot be determined."""
        return _is_locked(self._path(owner_id))

    def sweep(self) -> None:
        """Delete the lock files of owners that have ended."""
        for path in self.folder.glob("*.lock"):
            if path.stem != self.owner_id:
                with contextlib.suppress(OSError):
                    _remove_if_dead(path)

    def release(self) -> None:
        """Release the lock and delete its file."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                self._path(self.owner_id).unlink()
            os.close(self._descriptor)
            self._descriptor = -1

    def abandon(self) -> None:
        """Close the lock in a forked child; the parent keeps it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _take(self) -> tuple[str, int]:
        """Create and lock a file under a new id; retry if another process swept it before it was locked."""
        while True:
            owner_id = f"own_{self._random_bytes(12).hex()}"
            path = self._path(owner_id)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            if try_lock(descriptor, shared=False) and path.exists():
                self._write_facts(descriptor)
                return owner_id, descriptor
            os.close(descriptor)

    def _write_facts(self, descriptor: int) -> None:
        """Write which process this is, for `toolpost status`; a full disk must not keep a process from starting."""
        facts = _Facts(host=platform.node(), pid=os.getpid(), started_at=self._now(), version=version("toolpost"))
        with contextlib.suppress(OSError):
            os.lseek(descriptor, _FACTS_AT, os.SEEK_SET)
            os.write(descriptor, msgspec.json.encode(facts))

    def _path(self, owner_id: str) -> Path:
        return self.folder / f"{owner_id}.lock"


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    pid: int
    started_at: float
    version: str | None = None


_HELD: WeakSet[Liveness] = WeakSet()


def _abandon_all() -> None:
    for liveness in _HELD:
        liveness.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


def _remove_if_dead(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        if try_lock(descriptor, shared=False):
            path.unlink()
    finally:
        os.close(descriptor)


def list_owners(folder: Path) -> list[OwnerStatus]:
    """Return the processes that have the store of a folder open."""
    return [_describe(path) for path in sorted(folder.glob("*.lock")) if _is_locked(path)]


def _describe(path: Path) -> OwnerStatus:
    """Return the owner of a lock file, with the facts that it contains."""
    with contextlib.suppress(OSError, ValueError, msgspec.ValidationError):
        with path.open("rb") as file:
            file.seek(_FACTS_AT)
            facts = msgspec.json.decode(file.read(), type=_Facts)
        return OwnerStatus(id=path.stem, is_alive=True, **msgspec.structs.asdict(facts))
    return OwnerStatus(id=path.stem, is_alive=True)


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)
