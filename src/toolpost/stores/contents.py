"""Files named by the hash of what they hold: written whole or not at all, the same content once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from toolpost.contracts.errors import StoreError

# A half-written file of this age belongs to nobody any more.
STALE_S = 3600.0
_TEMPORARY = ".part"


class ContentFiles:
    """Bytes under `<folder>/<first two digits>/<sha256>`; knows nothing of who they belong to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, sha256: str) -> Path:
        """Where content lies, or would."""
        return self._folder / sha256[:2] / sha256

    def holds(self, sha256: str, size: int) -> bool:
        """Whether this content is here, whole."""
        try:
            return self.path(sha256).stat().st_size == size
        except OSError:
            return False

    def write(self, sha256: str, data: bytes) -> None:
        """Have the content on disk, synced before it gets its name."""
        if self.holds(sha256, len(data)):
            return
        path = self.path(sha256)
        temporary = path.with_name(f"{os.urandom(8).hex()}{_TEMPORARY}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_synced(temporary, data)
            temporary.replace(path)
            _sync_folder(path.parent)
        except OSError as exc:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise StoreError(
                f"artifact file {str(path)!r} cannot be written: {exc.strerror}; make room or check permissions",
                cause=exc,
            ) from exc

    def read(self, sha256: str, *, offset: int, limit: int | None) -> bytes:
        """Part of the content, without loading the rest."""
        try:
            with self.path(sha256).open("rb") as file:
                file.seek(max(0, offset))
                return file.read(-1 if limit is None else max(0, limit))
        except OSError as exc:
            raise StoreError(
                f"artifact file {str(self.path(sha256))!r} cannot be read: {exc.strerror}; restore it from a backup",
                cause=exc,
            ) from exc

    def names(self) -> Iterator[str]:
        """The hashes of all contents."""
        return (path.name for path in self._folder.glob("??/*") if path.suffix != _TEMPORARY)

    def delete(self, sha256: str) -> bool:
        """Remove content; whether it was there."""
        try:
            self.path(sha256).unlink()
        except FileNotFoundError:
            return False
        return True

    def sweep(self, now: float) -> None:
        """Remove what writers that died left half-written."""
        for path in self._folder.glob(f"??/*{_TEMPORARY}"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < now - STALE_S:
                    path.unlink()


def _write_synced(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """A new name is durable once its folder is; Windows cannot and need not."""
    with contextlib.suppress(PermissionError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
