"""Back up a store into an archive while processes use it, and restore it into an empty database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from toolpost.contracts.errors import StoreError
from toolpost.contracts.events import CallRef, EventCode, RunEvent
from toolpost.contracts.principal import LOCAL_TENANT
from toolpost.contracts.storage import Cipher
from toolpost.stores.archive import ArchiveReader, ArchiveWriter, Manifest
from toolpost.stores.content_files import ARTIFACTS, ContentFiles
from toolpost.stores.encryption import RowCipher
from toolpost.stores.registry import StoreOptions
from toolpost.stores.sql.restored_calls import interrupt_open_calls
from toolpost.stores.transfer import Batches, PortableBackend, Snapshot, tables_of

# More positions than any log assigns in a second, so none of those assigned since the backup is assigned again.
_POSITIONS_A_SECOND = 10_000 << 12
_SHORTEST_S = 3600.0
_SHA256 = "sha256"


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
    with ArchiveReader(source) as archive:
        archive.check()
        manifest = archive.manifest
        now = options.clock.wall()
        position = manifest.log.last_event + int(max(now - manifest.created_at, _SHORTEST_S) * _POSITIONS_A_SECOND)
        with backend.fill(options, schema=manifest.schema) as store:
            key = store.write_log(manifest.log, position=position)
            for table, columns in manifest.columns.items():
                if store.insert(table, columns, archive.rows(table)) != manifest.rows[table]:
                    raise StoreError(f"backup {str(source)!r}: rows of {table} are missing; nothing was restored")
            has_jobs = "jobs" in manifest.columns
            interrupted = interrupt_open_calls(store.statements, RowCipher(cipher), key, at=now, has_jobs=has_jobs)
            _restore_contents(archive, options, cipher)
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
    """Add the contents of artifacts; return the hashes of those without a file."""
    folder = folder_of(options)
    files = ContentFiles(folder / ARTIFACTS, options.make_cipher(folder))
    lost = set[str]()
    for sha256 in sorted(_contents_of(snapshot)):
        try:
            archive.add_content(sha256, files.path(sha256))
        except FileNotFoundError:
            lost.add(sha256)
    return lost


def _contents_of(snapshot: Snapshot) -> set[str]:
    at = snapshot.columns("artifacts").index(_SHA256)
    return {row[at] for batch in snapshot.rows("artifacts") for row in batch}


def _without(batches: Batches, at: int, lost: set[str]) -> Iterator[list[tuple[object, ...]]]:
    for batch in batches:
        yield [row for row in batch if row[at] not in lost]


def _restore_contents(archive: ArchiveReader, options: StoreOptions, cipher: Cipher) -> None:
    files = ContentFiles(folder_of(options) / ARTIFACTS, cipher)
    for sha256, content in archive.contents():
        files.restore(sha256, content)
