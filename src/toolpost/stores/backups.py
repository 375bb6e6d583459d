"""Back up a store into an archive while processes use it, and restore it into an empty database."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from toolpost.contracts.errors import StoreError
from toolpost.contracts.events import CallRef, EventCode, RunEvent
from toolpost.contracts.ids import IdMaker
from toolpost.contracts.principal import LOCAL_TENANT
from toolpost.contracts.storage import Cipher
from toolpost.stores.archive import ArchiveReader, ArchiveWriter, Manifest
from toolpost.stores.artifact_contents import ArtifactContent
from toolpost.stores.content_files import ContentFiles
from toolpost.stores.encryption import RowCipher
from toolpost.stores.object_storage import Bucket
from toolpost.stores.registry import StoreOptions
from toolpost.stores.sql.content_objects import ContentPlaces, EncodedContent, add_stored, object_name
from toolpost.stores.sql.database import Statements
from toolpost.stores.sql.restored_calls import interrupt_open_calls
from toolpost.stores.transfer import NOT_BACKED_UP, SINCE, Batches, PortableBackend, Snapshot, tables_of

# More positions than any log assigns in a second, so no position assigned since the backup is assigned again.
_POSITIONS_A_SECOND = 10_000 << 12
_SHORTEST_S = 3600.0
_SHA256 = "sha256"
_SIZES = "SELECT DISTINCT sha256, size FROM artifacts"
_log = logging.getLogger("toolpost.stores")


class Backup(NamedTuple):
    """A written archive; `deleted` artifacts were deleted in the meantime, and those of `missing` have no content."""

    path: Path
    manifest: Manifest
    deleted: int
    missing: list[str]


class RestoredBackup(NamedTuple):
    """The result of a restore."""

    manifest: Manifest
    interrupted: int
    sessions: int
    position: int


def back_up(backend: PortableBackend, options: StoreOptions, target: Path) -> Backup:
    """Write an archive to a new file, or to a new file in a folder."""
    path = target / time.strftime("toolpost-%Y%m%d-%H%M%S.zip") if target.is_dir() else target
    name = options.database.partition(":")[0]
    with ArchiveWriter(path) as archive, backend.snapshot(options) as snapshot:
        created_at = options.clock.wall()
        lost = _add_contents(archive, snapshot, options)
        for table in tables_of(snapshot.schema):
            if table in NOT_BACKED_UP:
                continue
            rows = snapshot.rows(table)
            if table == "artifacts" and lost:
                rows = _without(rows, snapshot.columns(table).index(_SHA256), lost)
            archive.add_table(table, snapshot.columns(table), rows)
        with backend.snapshot(options) as later:
            missing = sorted(lost & _contents_of(later))
        manifest = archive.finish(
            toolpost=version("toolpost"), database=name, schema=snapshot.schema, created_at=created_at, log=snapshot.log
        )
    return Backup(path, manifest, len(lost) - len(missing), missing)


def restore(backend: PortableBackend, options: StoreOptions, source: Path) -> RestoredBackup:
    """Fill an empty database from an archive.

    Positions of events begin above all that were assigned since the backup. Calls that were open become unknown.
    """
    cipher = options.make_cipher(folder_of(options))
    with ArchiveReader(source) as archive, _target(options, cipher) as contents:
        archive.check()
        manifest = archive.manifest
        contents.refuse_schema(manifest.schema)
        now = options.clock.wall()
        position = manifest.log.last_event + int(max(now - manifest.created_at, _SHORTEST_S) * _POSITIONS_A_SECOND)
        with backend.fill(options, schema=manifest.schema) as store:
            key = store.write_log(manifest.log, position=position)
            for table, columns in manifest.columns.items():
                if store.insert(table, columns, archive.rows(table)) != manifest.rows[table]:
                    raise StoreError(f"backup {str(source)!r}: rows of {table} are missing; nothing was restored")
            has_jobs = "jobs" in manifest.columns
            interrupted = interrupt_open_calls(store.statements, RowCipher(cipher), key, at=now, has_jobs=has_jobs)
            contents.restore(archive, store.statements, at=now)
    return RestoredBackup(manifest, interrupted.calls, interrupted.sessions, position)


async def announce_restore(backend: PortableBackend, options: StoreOptions, done: RestoredBackup) -> list[str]:
    """Emit an event for followers of the log; return the signs of tampering in the restored rows."""
    store = await backend.open(options)
    try:
        problems = await store.events.verify()
        call = CallRef("database", "", "", LOCAL_TENANT, "toolpost", "", dict)
        facts = {"backup_at": done.manifest.created_at, "position": done.position, "interrupted": done.interrupted}
        store.events.emit(RunEvent(EventCode.DATABASE_RESTORED, options.clock.wall(), call, facts))
        await store.events.flush()
        return problems
    finally:
        await store.close()


def folder_of(options: StoreOptions) -> Path:
    """Return the data folder, which has the key and the contents of artifacts."""
    if options.data_dir is None:
        raise StoreError("there is no data folder; set data_dir")
    return options.data_dir


def _add_contents(archive: ArchiveWriter, snapshot: Snapshot, options: StoreOptions) -> set[str]:
    """Add the contents of artifacts; return the hashes of those without a file or an object."""
    folder = folder_of(options)
    files, bucket = ContentPlaces.of(folder, options.make_cipher(folder), options.artifacts)
    objects = {} if bucket is None else _objects_of(snapshot)
    lost = set[str]()
    for sha256 in sorted(_contents_of(snapshot)):
        name = objects.get(sha256)
        try:
            archive.add_content(
                sha256, files.stream(sha256) if bucket is None or name is None else bucket.stream_now(name)
            )
        except FileNotFoundError:
            lost.add(sha256)
    return lost


def _contents_of(snapshot: Snapshot) -> set[str]:
    at = snapshot.columns("artifacts").index(_SHA256)
    return {row[at] for batch in snapshot.rows("artifacts") for row in batch}


def _objects_of(snapshot: Snapshot) -> dict[str, str]:
    """Return the names of the objects of complete contents by hash."""
    if "contents" not in tables_of(snapshot.schema):
        return {}
    columns = snapshot.columns("contents")
    name, sha256, state = (columns.index(column) for column in ("object", _SHA256, "state"))
    return {row[sha256]: row[name] for batch in snapshot.rows("contents") for row in batch if row[state] == "ready"}


def _without(batches: Batches, at: int, lost: set[str]) -> Iterator[list[tuple[object, ...]]]:
    for batch in batches:
        yield [row for row in batch if row[at] not in lost]


@contextmanager
def _target(options: StoreOptions, cipher: Cipher) -> Generator[_RestoredFiles | _RestoredObjects]:
    """Yield where contents are restored to; if the restore fails, objects are removed again."""
    files, bucket = ContentPlaces.of(folder_of(options), cipher, options.artifacts)
    if bucket is None:
        yield _RestoredFiles(files)
        return
    objects = _RestoredObjects(bucket, cipher, IdMaker(options.clock, secure=True))
    try:
        yield objects
    except BaseException:
        objects.remove()
        raise


class _RestoredFiles:
    """Contents that are restored into the data folder."""

    def __init__(self, files: ContentFiles) -> None:
        self._files = files

    def refuse_schema(self, schema: int) -> None:
        """Do nothing: files are of every version."""

    def restore(self, archive: ArchiveReader, db: Statements, *, at: float) -> None:
        """Write the contents of an archive."""
        for sha256, content in archive.contents():
            self._files.restore(sha256, content)


class _RestoredObjects:
    """Contents that are restored into a bucket, as new objects: the objects of the backed up database are not used."""

    def __init__(self, bucket: Bucket, cipher: Cipher, ids: IdMaker) -> None:
        self._bucket = bucket
        self._cipher = cipher
        self._ids = ids
        self._names: list[str] = []

    def refuse_schema(self, schema: int) -> None:
        """Raise StoreError for a backup of a version without the table of objects."""
        if schema < SINCE["contents"]:
            raise StoreError(
                "this backup was written before contents could be in object storage; restore it without `artifacts`, "
                "back that database up, and restore the new backup with `artifacts`"
            )

    def restore(self, archive: ArchiveReader, db: Statements, *, at: float) -> None:
        """Upload the contents of an archive, and add their rows."""
        sizes = dict(db.execute(_SIZES).fetchall())
        for sha256, content in archive.contents():
            if sha256 not in sizes:
                continue
            name = object_name(self._ids)
            self._names.append(name)
            encoded = EncodedContent.of(content.read(), self._cipher)
            self._bucket.put_now(name, encoded.data)
            place = str(self._bucket.place)
            add_stored(db, name, place, ArtifactContent(sha256, sizes[sha256]), encoded, at=at)

    def remove(self) -> None:
        """Remove the uploaded objects after a restore that failed."""
        if not self._names:
            return
        try:
            self._bucket.delete_now(self._names)
        except StoreError as error:
            _log.warning("%d uploaded objects could not be removed: %s", len(self._names), error.message)
