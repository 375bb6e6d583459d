"""Contents of artifacts in encrypted files named by their hash."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO

from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import Cipher
from toolpost.stores.artifact_contents import HEADER_BYTES, ArtifactContent, ContentPart, chunk_length
from toolpost.stores.durable_files import make_private_folder, sync_folder, write_synced

ARTIFACTS = "artifacts"  # the folder in a data folder
# The writer of a half-written file of this age has ended.
STALE_S = 3600.0
_TEMPORARY = ".part"
_COPIED_BYTES = 1 << 20


class ContentFiles:
    """Encrypted contents in `<folder>/<first two digits>/<sha256>`, without knowledge of their owners."""

    def __init__(self, folder: Path, cipher: Cipher) -> None:
        self._folder = folder
        self._cipher = cipher

    def path(self, sha256: str) -> Path:
        """Return the path of a content, which may not exist."""
        return self._folder / sha256[:2] / sha256

    def holds(self, sha256: str, size: int) -> bool:
        """Return whether the content is stored completely."""
        try:
            with self.path(sha256).open("rb") as file:
                return _is_complete(file, ArtifactContent(sha256, size))
        except OSError:
            return False

    def write(self, sha256: str, data: bytes) -> None:
        """Store a content, synced before it gets its name."""
        if not self.holds(sha256, len(data)):
            self._replace(sha256, data)

    def stream(self, sha256: str) -> Iterator[bytes]:
        """Yield the file of a content in pieces; FileNotFoundError if there is none."""
        with self.path(sha256).open("rb") as file:
            yield from iter(partial(file.read, _COPIED_BYTES), b"")

    def restore(self, sha256: str, encrypted: IO[bytes]) -> None:
        """Store the file of a content as it was backed up."""
        self._write(sha256, iter(partial(encrypted.read, _COPIED_BYTES), b""))

    def _replace(self, sha256: str, data: bytes) -> None:
        self._write(sha256, ArtifactContent(sha256, len(data)).encode(self._cipher, data))

    def _write(self, sha256: str, parts: Iterable[bytes]) -> None:
        path = self.path(sha256)
        temporary = path.with_name(f"{os.urandom(8).hex()}{_TEMPORARY}")
        try:
            make_private_folder(path.parent)
            write_synced(temporary, parts)
            temporary.replace(path)
            sync_folder(path.parent)
        except OSError as exc:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise StoreError(
                f"artifact file {str(path)!r} cannot be written: {exc.strerror}; free some space or check permissions",
                cause=exc,
            ) from exc

    def read(self, sha256: str, *, size: int, offset: int, limit: int | None) -> bytes:
        """Read a part of a content without loading the rest."""
        content = ArtifactContent(sha256, size)
        try:
            with self.path(sha256).open("rb") as file:
                return self._opened(file, content, content.part(offset, limit))
        except OSError as exc:
            raise StoreError(
                f"artifact file {str(self.path(sha256))!r} cannot be read: {exc.strerror}; restore it from a backup",
                cause=exc,
            ) from exc

    def reencrypt(self, sha256: str, size: int) -> bool:
        """Re-encrypt a content with the newest key; return whether it changed. StoreError if it cannot be decrypted."""
        with contextlib.suppress(FileNotFoundError):
            mark = self._cipher.prefix()
            with self.path(sha256).open("rb") as file:
                head = file.read(HEADER_BYTES + len(mark))
            if not size or head[HEADER_BYTES:] == mark:
                return False
            data = self.read(sha256, size=size, offset=0, limit=None)
            self._replace(sha256, data)
            return True
        return False

    def names(self) -> Iterator[str]:
        """Return the hashes of all contents."""
        return (path.name for path in self._folder.glob("??/*") if path.suffix != _TEMPORARY)

    def delete(self, sha256: str) -> bool:
        """Delete a content; return whether it existed."""
        try:
            self.path(sha256).unlink()
        except FileNotFoundError:
            return False
        return True

    def sweep(self, now: float) -> None:
        """Delete temporary files of writers that have ended."""
        for path in self._folder.glob(f"??/*{_TEMPORARY}"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < now - STALE_S:
                    path.unlink()

    def _opened(self, file: BinaryIO, content: ArtifactContent, part: ContentPart) -> bytes:
        if not _is_complete(file, content):
            raise StoreError(f"artifact file {file.name!r} is damaged: its size is wrong; restore it from a backup")
        length = _chunk_length(file)
        file.seek(HEADER_BYTES + part.numbers.start * length)
        return part.cut(b"".join([content.decrypt(self._cipher, at, file.read(length)) for at in part.numbers]))


def _is_complete(file: BinaryIO, content: ArtifactContent) -> bool:
    return os.fstat(file.fileno()).st_size == content.encoded_size(_chunk_length(file))


def _chunk_length(file: BinaryIO) -> int:
    file.seek(0)
    return chunk_length(file.read(HEADER_BYTES))
