"""Contents of artifacts in object storage.

A row precedes its object, and outlives it. It begins as `uploading`, is `ready` in the transaction that adds the
artifact, and `deleted` when no artifact has the content; the object is removed some time later. A process may end at
any step: no artifact is without its content, and no object is without a row that leads to its removal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from toolpost.contracts.errors import ConfigError, StoreError
from toolpost.contracts.ids import IdMaker
from toolpost.contracts.storage import Cipher
from toolpost.stores.artifact_contents import HEADER_BYTES, ArtifactContent, ContentPart, chunk_length
from toolpost.stores.content_files import ARTIFACTS, ContentFiles
from toolpost.stores.object_storage import TRANSFER_S, Bucket, BucketPlace, open_bucket
from toolpost.stores.registry import StoreCheck
from toolpost.stores.sql.contents import (
    CONTENTS_A_STEP,
    AddRow,
    ContentStore,
    StoredFiles,
    has_artifact,
    lock_content,
)
from toolpost.stores.sql.database import SharedDatabase, SQLConnection, Statements

GRACE_S = 3600.0
"""Downloads and backups of a deleted content may continue for this time, and an upload has ended after it."""
assert GRACE_S > 2 * TRANSFER_S  # noqa: S101 - an upload that still runs must not be taken for an interrupted one

_READY = "SELECT object, chunk FROM contents WHERE sha256 = :sha256 AND size = :size AND state = 'ready' ORDER BY at"
_BEGIN = """
INSERT INTO contents (object, place, sha256, size, chunk, key_prefix, state, at)
VALUES (:object, :place, :sha256, :size, 0, :key_prefix, 'uploading', :at)
"""
_FINISH = """
UPDATE contents SET state = 'ready', chunk = :chunk, key_prefix = :key_prefix, at = :at
WHERE object = :object AND state = 'uploading'
"""
# Not one that is ready: the commit that finished it may have been reported as failed.
_GIVE_UP = "UPDATE contents SET state = 'deleted', at = :at WHERE object = :object AND state = 'uploading'"
_REPLACE = "UPDATE contents SET state = 'deleted', at = :at WHERE object = :object AND state = 'ready'"
_INTERRUPTED = "UPDATE contents SET state = 'deleted', at = :at WHERE state = 'uploading' AND at < :before"
_UNNAMED = f"""
SELECT DISTINCT sha256 FROM contents AS one
WHERE state = 'ready' AND NOT EXISTS (SELECT 1 FROM artifacts WHERE artifacts.sha256 = one.sha256)
LIMIT {CONTENTS_A_STEP}
"""  # noqa: S608 - constants, here and below
_RELEASE = "UPDATE contents SET state = 'deleted', at = :at WHERE sha256 = :sha256 AND state = 'ready'"
_REMOVABLE = (
    f"SELECT object FROM contents WHERE state = 'deleted' AND at <= :before ORDER BY at LIMIT {CONTENTS_A_STEP}"  # noqa: S608
)
_REMOVE = "DELETE FROM contents WHERE object = ANY(:objects) AND state = 'deleted'"
_OLDER = f"""
SELECT object, chunk, sha256, size FROM contents
WHERE state = 'ready' AND size > 0 AND key_prefix <> :key_prefix AND object > :after ORDER BY object
LIMIT {CONTENTS_A_STEP}
"""  # noqa: S608
_ELSEWHERE = "SELECT place FROM contents WHERE place <> :place LIMIT 1"
_ADD_READY = _BEGIN.replace("0, :key_prefix, 'uploading'", ":chunk, :key_prefix, 'ready'")
_log = logging.getLogger("toolpost.stores")


class EncodedContent(NamedTuple):
    """An encrypted content with its header."""

    data: bytes
    chunk: int
    key_prefix: bytes

    @classmethod
    def of(cls, data: bytes, cipher: Cipher) -> EncodedContent:
        """Return the data, with the values of it that its row contains."""
        prefix = data[HEADER_BYTES : HEADER_BYTES + len(cipher.prefix())]
        return cls(data, chunk_length(data), prefix)


class StoredObjects:
    """Contents in a bucket; those that were stored before the bucket was configured are still read from files."""

    def __init__(
        self, shared: SharedDatabase, bucket: Bucket, cipher: Cipher, ids: IdMaker, *, files: StoredFiles
    ) -> None:
        self._shared = shared
        self._bucket = bucket
        self._cipher = cipher
        self._ids = ids
        self._files = files

    async def store(self, content: ArtifactContent, data: bytes, add_row: AddRow) -> None:
        name = await self._shared.write(partial(self._begin, content=content, add_row=add_row))
        if name is not None:
            await self._upload(name, content, data, add_row)

    async def read(self, content: ArtifactContent, *, offset: int, limit: int | None) -> bytes:
        ready = await self._shared.read(lambda db: db.execute(_READY, content._asdict()).fetchone())
        if ready is None:
            return await self._files.read(content, offset=offset, limit=limit)
        name, chunk = ready
        part = content.part(offset, limit)
        if part.start >= part.end:
            return b""
        begin = HEADER_BYTES + part.numbers.start * chunk
        end = min(HEADER_BYTES + part.numbers.stop * chunk, content.encoded_size(chunk) or 0)
        encrypted = await self._bucket.read(name, begin, end)
        if len(encrypted) != end - begin:
            raise StoreError(
                f"object {name!r} in {self._bucket.place} is damaged: its size is wrong; restore it from a backup"
            )
        return await asyncio.to_thread(self._decrypt, content, encrypted, part, chunk)

    async def collect(self, now: float) -> int:
        values = {"at": now, "before": now - GRACE_S}
        marked = await self._shared.write(lambda db: db.execute(_INTERRUPTED, values).rowcount)
        while hashes := await self._shared.read(lambda db: [row[0] for row in db.execute(_UNNAMED)]):
            released = await self._shared.write(partial(self._release, hashes=hashes, at=now))
            marked += released
            if not released:
                break  # artifacts of all of them were added concurrently
        await self._remove(now - GRACE_S)
        return marked + await self._files.collect(now)

    async def release(self, hashes: list[str]) -> int:
        steps = [hashes[start : start + CONTENTS_A_STEP] for start in range(0, len(hashes), CONTENTS_A_STEP)]
        # Marked long ago: the objects of an erased user are not kept for downloads and backups.
        at = self._shared.clock.wall() - GRACE_S
        released = [await self._shared.write(partial(self._release, hashes=step, at=at)) for step in steps]
        await self._remove(at)
        return sum(released) + await self._files.release(hashes)

    async def reencrypt(self) -> dict[str, int]:
        counts = {"artifacts": 0, "unreadable": 0}
        values = {"key_prefix": self._cipher.prefix(), "after": ""}
        while rows := await self._shared.read(lambda db: db.execute(_OLDER, values).fetchall()):
            for name, chunk, *of in rows:
                try:
                    await self._reencrypt_one(name, chunk, ArtifactContent(*of))
                    counts["artifacts"] += 1
                except StoreError as error:
                    _log.warning("content %s is not re-encrypted: %s", of[0][:12], error.message)
                    counts["unreadable"] += 1
            values["after"] = rows[-1][0]
        files = await self._files.reencrypt()
        return {kind: counts[kind] + files[kind] for kind in counts}

    async def _upload(self, name: str, content: ArtifactContent, data: bytes, finish: AddRow) -> None:
        """Upload a content for a row, and finish with the artifact in one transaction."""
        try:
            parts = await asyncio.to_thread(lambda: b"".join(content.encode(self._cipher, data)))
            await self._bucket.put(name, parts)
            encoded = EncodedContent.of(parts, self._cipher)
            work = partial(self._finish, name=name, content=content, encoded=encoded, finish=finish)
            done = await self._shared.write(work)
        except BaseException:
            # The object may exist. If this fails as well, the row is collected once no upload can be running.
            with suppress(StoreError):
                await self._shared.write(lambda db: self._mark(db, _GIVE_UP, name))
            raise
        if not done:
            await self._bucket.delete([name])
            raise StoreError(
                f"object storage {self._bucket.place}: the upload took too long, and the content was not stored"
            )

    async def _reencrypt_one(self, old: str, chunk: int, content: ArtifactContent) -> None:
        """Replace an object by one of the newest key."""
        end = content.encoded_size(chunk) or 0
        encrypted = await self._bucket.read(old, HEADER_BYTES, end)
        part = content.part(0, None)
        data = await asyncio.to_thread(self._decrypt, content, encrypted, part, chunk)
        name = await self._shared.write(partial(self._reserve, content=content))
        await self._upload(name, content, data, lambda db: self._mark(db, _REPLACE, old))

    async def _remove(self, before: float) -> None:
        """Remove the objects that were marked before a time; if the storage fails, the next call removes them."""
        values = {"before": before}
        while names := await self._shared.read(lambda db: [row[0] for row in db.execute(_REMOVABLE, values)]):
            try:
                await self._bucket.delete(names)
            except StoreError as error:
                _log.warning("%d deleted contents stay until the next attempt: %s", len(names), error.message)
                return
            await self._shared.write(partial(_remove_rows, names=names))

    def _begin(self, db: SQLConnection, *, content: ArtifactContent, add_row: AddRow) -> str | None:
        """Add the row of an artifact with a stored content; without one, reserve an object and return its name."""
        lock_content(db, content.sha256)
        if db.execute(_READY, content._asdict()).fetchone() is not None:
            add_row(db)
            return None
        return self._reserve(db, content=content)

    def _reserve(self, db: SQLConnection, *, content: ArtifactContent) -> str:
        name = object_name(self._ids)
        values = {**content._asdict(), "object": name, "place": str(self._bucket.place)}
        db.execute(_BEGIN, {**values, "key_prefix": b"", "at": self._shared.clock.wall()})
        return name

    def _finish(
        self, db: SQLConnection, *, name: str, content: ArtifactContent, encoded: EncodedContent, finish: AddRow
    ) -> bool:
        """Make an object ready and finish; return False if it was collected, because the upload took too long."""
        lock_content(db, content.sha256)
        values = {"object": name, "chunk": encoded.chunk, "key_prefix": encoded.key_prefix}
        if not db.execute(_FINISH, {**values, "at": self._shared.clock.wall()}).rowcount:
            return False
        finish(db)
        return True

    def _mark(self, db: SQLConnection, sql: str, name: str) -> None:
        db.execute(sql, {"object": name, "at": self._shared.clock.wall()})

    def _release(self, db: SQLConnection, *, hashes: list[str], at: float) -> int:
        released = 0
        for sha256 in hashes:
            lock_content(db, sha256)
            if not has_artifact(db, sha256):
                released += db.execute(_RELEASE, {"sha256": sha256, "at": at}).rowcount
        return released

    def _decrypt(self, content: ArtifactContent, encrypted: bytes, part: ContentPart, chunk: int) -> bytes:
        starts = range(0, len(encrypted), chunk)
        plain = zip(part.numbers, starts, strict=True)
        return part.cut(
            b"".join([content.decrypt(self._cipher, number, encrypted[at : at + chunk]) for number, at in plain])
        )


class ContentPlaces(NamedTuple):
    """The folder of contents, and the bucket that new ones are stored in instead."""

    files: ContentFiles
    bucket: Bucket | None

    @classmethod
    def of(cls, data_dir: Path, cipher: Cipher, place: str | None) -> ContentPlaces:
        """Return the places of a data folder and the setting `artifacts`; ConfigError if the extra is missing."""
        return cls(ContentFiles(data_dir / ARTIFACTS, cipher), open_bucket(place))

    def contents(self, shared: SharedDatabase, cipher: Cipher, ids: IdMaker) -> ContentStore:
        """Return the contents for the parts of a store."""
        files = StoredFiles(shared, self.files)
        return files if self.bucket is None else StoredObjects(shared, self.bucket, cipher, ids, files=files)


def object_name(ids: IdMaker) -> str:
    """Return the name of a new object, which no other object ever has."""
    name = ids.make("obj")
    return f"{name[-2:]}/{name}"


def add_stored(
    db: Statements, name: str, place: str, content: ArtifactContent, encoded: EncodedContent, *, at: float
) -> None:
    """Add the row of an object that was uploaded already, when a backup is restored."""
    values = {**content._asdict(), "object": name, "place": place}
    db.execute(_ADD_READY, {**values, "chunk": encoded.chunk, "key_prefix": encoded.key_prefix, "at": at})


def check_bucket(place: str | None) -> Iterator[StoreCheck]:
    """Check that the bucket of the setting `artifacts` exists and that the credentials may list it."""
    if place is None:
        return
    try:
        bucket = open_bucket(place)
        if bucket is not None:
            bucket.check()
    except (StoreError, ConfigError) as error:
        yield StoreCheck("broken", error.message)
    else:
        yield StoreCheck("ok", f"artifacts: {place} can be listed")


def refuse_other_place(db: Statements, place: str | None) -> None:
    """Raise StoreError if contents are in another bucket than the configured one."""
    row = db.execute(_ELSEWHERE, {"place": "" if place is None else str(BucketPlace.parse(place))}).fetchone()
    if row is not None:
        raise StoreError(
            f"contents of artifacts are in {row[0]}, but `artifacts` is {place or 'not set'}; set it to {row[0]} "
            "again. To use another place, back up, and restore the backup into an empty database with the new setting"
        )


def _remove_rows(db: SQLConnection, *, names: list[str]) -> None:
    db.execute(_REMOVE, {"objects": names})
