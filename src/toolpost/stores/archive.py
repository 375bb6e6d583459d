"""Archives: the data of a store in one ZIP file, with the contents of its artifacts.

`manifest.json` describes the archive. `tables/NAME` has the rows of a table in batches, each with its length before it.
`artifacts/HASH` is an encrypted content as it is stored, in a file or an object. An archive does not contain the key
that encrypts its values.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from toolpost.contracts.errors import StoreError
from toolpost.stores.transfer import LogState

FORMAT = 1
_MANIFEST = "manifest.json"
_TABLES, _CONTENTS = "tables/", "artifacts/"
_PART = ".part"
_LENGTH_BYTES = 4
_FAULTS = (OSError, EOFError, zipfile.BadZipFile, ValueError, msgspec.MsgspecError)
_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The description of an archive; `rows` are the numbers of rows by table, `schema` the version of the tables."""

    format: int
    toolpost: str
    database: str
    schema: int
    created_at: float
    log: LogState
    columns: Mapping[str, Sequence[str]]
    rows: Mapping[str, int]
    contents: int


class _Version(msgspec.Struct, frozen=True):
    format: int
    toolpost: str = "unknown"


class ArchiveWriter:
    """Writes an archive, which gets its name once it is complete; only its owner can read it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(path.name + _PART)
        try:
            if path.exists():
                raise StoreError(f"{str(path)!r} exists; name another file, or delete it")
            self._file: IO[bytes] = os.fdopen(os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "w+b")
        except OSError as error:
            raise self._unwritable(error) from error
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        self._columns: dict[str, list[str]] = {}
        self._rows: dict[str, int] = {}
        self._contents = 0

    def add_table(self, name: str, columns: Sequence[str], batches: Iterable[Sequence[tuple[Any, ...]]]) -> int:
        """Add the rows of a table; return their number."""
        rows = 0
        with self._zip.open(_TABLES + name, "w", force_zip64=True) as entry:
            for batch in batches:
                rows += len(batch)
                data = _encode(batch)
                entry.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
        self._columns[name], self._rows[name] = list(columns), rows
        return rows

    def add_content(self, sha256: str, pieces: Iterator[bytes]) -> None:
        """Add an encrypted content in pieces; FileNotFoundError of the first piece if there is none."""
        first = next(pieces, b"")
        stored = zipfile.ZipInfo(_CONTENTS + sha256)  # encrypted data cannot be compressed
        with self._zip.open(stored, "w", force_zip64=True) as entry:
            for piece in chain([first], pieces):
                entry.write(piece)
        self._contents += 1

    def finish(self, *, toolpost: str, database: str, schema: int, created_at: float, log: LogState) -> Manifest:
        """Write the manifest, check the whole file, and give it its name."""
        manifest = Manifest(
            format=FORMAT,
            toolpost=toolpost,
            database=database,
            schema=schema,
            created_at=created_at,
            log=log,
            columns=self._columns,
            rows=self._rows,
            contents=self._contents,
        )
        self._zip.writestr(_MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
        self._zip.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        with ArchiveReader(self._part) as written:
            written.check()
        self._part.replace(self._path)
        return manifest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        for part in (self._zip, self._file):
            with suppress(OSError, ValueError):  # it is complete, or deleted
                part.close()
        self._part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> StoreError:
        return StoreError(
            f"backup {str(self._path)!r} cannot be written: {error.strerror or error}; "
            "free some space, or name a folder that exists and that this user may write",
            cause=error,
        )


class ArchiveReader:
    """Reads an archive; every fault of the file is a StoreError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except _FAULTS as error:
            raise self._damaged(error) from error
        try:
            self.manifest = self._read_manifest()
        except BaseException:
            self._zip.close()
            raise

    def check(self) -> None:
        """Raise StoreError if a part of the file is damaged or missing."""
        try:
            damaged = self._zip.testzip()
        except (*_FAULTS, zipfile.LargeZipFile) as error:
            raise self._damaged(error) from error
        names = self._zip.namelist()
        contents = sum(name.startswith(_CONTENTS) for name in names)
        missing = [name for name in self.manifest.rows if _TABLES + name not in names]
        if damaged or missing or contents != self.manifest.contents:
            raise self._damaged(damaged or "parts are missing")

    def rows(self, table: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield the rows of a table in batches."""
        try:
            with self._zip.open(_TABLES + table) as entry:
                while length := entry.read(_LENGTH_BYTES):
                    yield _decode(entry.read(int.from_bytes(length, "big")))
        except (*_FAULTS, KeyError) as error:
            raise self._damaged(error) from error

    def contents(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Yield the hash of each content and its encrypted data."""
        for name in self._zip.namelist():
            if name.startswith(_CONTENTS):
                with self._zip.open(name) as entry:
                    yield name.removeprefix(_CONTENTS), entry

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def _read_manifest(self) -> Manifest:
        try:
            text = self._zip.read(_MANIFEST)
            version = msgspec.json.decode(text, type=_Version)
            if version.format > FORMAT:
                raise StoreError(
                    f"backup {str(self._path)!r} was written by toolpost {version.toolpost} in a newer format; "
                    "restore it with that version or a newer one"
                )
            return msgspec.json.decode(text, type=Manifest)
        except KeyError:
            raise StoreError(f"{str(self._path)!r} is a ZIP file, but not a backup of toolpost") from None
        except _FAULTS as error:
            raise self._damaged(error) from error

    def _damaged(self, why: object) -> StoreError:
        if isinstance(why, FileNotFoundError | IsADirectoryError | PermissionError):
            return StoreError(f"backup {str(self._path)!r} cannot be read: {why.strerror}", cause=why)
        return StoreError(
            f"backup {str(self._path)!r} is damaged or incomplete ({why}); nothing was restored. Use another backup",
            cause=why if isinstance(why, Exception) else None,
        )
