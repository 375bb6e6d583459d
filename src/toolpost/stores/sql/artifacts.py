"""Artifacts: metadata in the database, contents in files."""

from __future__ import annotations

import asyncio
from functools import partial
from hashlib import sha256
from typing import TypeAlias

from msgspec.structs import asdict, replace

from toolpost.contracts.ids import IdMaker
from toolpost.contracts.storage import ArtifactRef
from toolpost.stores.artifact_contents import REF_COLUMNS, REF_NAMES, ref_of
from toolpost.stores.content_files import ContentFiles
from toolpost.stores.sql.database import SharedDatabase, SQLConnection, where

Refs: TypeAlias = list[ArtifactRef]  # The store's own `list` hides the builtin one.
_INSERT = f"INSERT INTO artifacts ({REF_COLUMNS}) VALUES ({', '.join(f':{name}' for name in REF_NAMES)})"  # noqa: S608 - constants, here and below
_SELECT = f"SELECT {REF_COLUMNS} FROM artifacts WHERE TRUE"  # noqa: S608
_NAMED = "SELECT 1 FROM artifacts WHERE sha256 = :sha256"


class SQLArtifactStore:
    """Artifacts under random IDs, which do not follow from their content.

    A content is complete before the row of its artifact exists, and is deleted after the last row of it. The lock of a
    content keeps these two apart: a process that ends in between leaves a content without a row, which pruning deletes.
    """

    def __init__(self, shared: SharedDatabase, files: ContentFiles, ids: IdMaker) -> None:
        self._shared = shared
        self._files = files
        self._ids = ids

    async def put(self, data: bytes, ref: ArtifactRef) -> ArtifactRef:
        digest = await asyncio.to_thread(lambda: sha256(data).hexdigest())
        stored_ref = replace(ref, id=self._ids.make("art"), sha256=digest, size=len(data))
        done = False
        while not done:  # pruning may remove the file before the row exists; then it is written again
            await asyncio.to_thread(self._files.write, digest, data)
            done = await self._shared.write(partial(self._insert, ref=stored_ref))
        return stored_ref

    async def info(self, artifact_id: str, *, tenant: str | None, user: str | None = None) -> ArtifactRef | None:
        values = {"tenant": tenant, "user": user, "id": artifact_id}
        sql = _SELECT + where(**values)
        row = await self._shared.read(lambda db: db.execute(sql, values).fetchone())
        return ref_of(row) if row else None

    async def read(
        self,
        artifact_id: str,
        *,
        tenant: str | None,
        user: str | None = None,
        offset: int = 0,
        limit: int | None = None,
    ) -> bytes:
        ref = await self.info(artifact_id, tenant=tenant, user=user)
        if ref is None:
            raise KeyError(artifact_id)
        return await asyncio.to_thread(self._files.read, ref.sha256, size=ref.size, offset=offset, limit=limit)

    async def list(
        self,
        *,
        tenant: str | None = None,
        user: str | None = None,
        run_id: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Refs:
        owned = where(tenant=tenant, user=user)
        sql = _SELECT + owned + where(run_id=run_id)
        if before is not None:
            last = f"SELECT created_at, rowid FROM artifacts WHERE id = :before{owned}"  # noqa: S608
            sql += f" AND (created_at, rowid) < ({last})"
        sql += " ORDER BY created_at DESC, rowid DESC LIMIT :limit"
        values = {"tenant": tenant, "user": user, "run_id": run_id, "before": before, "limit": max(0, limit)}
        return await self._shared.read(lambda db: [ref_of(row) for row in db.execute(sql, values)])

    def _insert(self, db: SQLConnection, *, ref: ArtifactRef) -> bool:
        """Add the row of an artifact; return False if its content is missing."""
        lock_content(db, ref.sha256)
        if not self._files.holds(ref.sha256, ref.size):
            return False
        db.execute(_INSERT, asdict(ref))
        return True


def delete_unnamed(db: SQLConnection, files: ContentFiles, names: list[str]) -> int:
    """Delete the contents that no artifact has; return their number."""
    return sum(_delete_unnamed(db, files, name) for name in names)


def lock_content(db: SQLConnection, sha256: str) -> None:
    """Lock a content, so that it is not deleted while an artifact of it is added."""
    db.lock(f"content {sha256}")


def _delete_unnamed(db: SQLConnection, files: ContentFiles, name: str) -> bool:
    lock_content(db, name)
    return not db.execute(_NAMED, {"sha256": name}).fetchone() and files.delete(name)
