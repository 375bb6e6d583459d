"""Artifacts: metadata in the database, contents in the data folder or in object storage."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import TypeAlias

from msgspec.structs import asdict, replace

from toolpost.contracts.ids import IdMaker
from toolpost.contracts.storage import ArtifactRef
from toolpost.stores.artifact_contents import REF_COLUMNS, REF_NAMES, ArtifactContent, ref_of
from toolpost.stores.sql.contents import ContentStore
from toolpost.stores.sql.database import SharedDatabase, where

Refs: TypeAlias = list[ArtifactRef]  # The store's own `list` hides the builtin one.
_INSERT = f"INSERT INTO artifacts ({REF_COLUMNS}) VALUES ({', '.join(f':{name}' for name in REF_NAMES)})"  # noqa: S608 - constants, here and below
_SELECT = f"SELECT {REF_COLUMNS} FROM artifacts WHERE TRUE"  # noqa: S608


class SQLArtifactStore:
    """Artifacts under random IDs, which do not follow from their content."""

    def __init__(self, shared: SharedDatabase, contents: ContentStore, ids: IdMaker) -> None:
        self._shared = shared
        self._contents = contents
        self._ids = ids

    async def put(self, data: bytes, ref: ArtifactRef) -> ArtifactRef:
        digest = await asyncio.to_thread(lambda: sha256(data).hexdigest())
        stored_ref = replace(ref, id=self._ids.make("art"), sha256=digest, size=len(data))
        values = asdict(stored_ref)
        await self._contents.store(ArtifactContent(digest, len(data)), data, lambda db: db.execute(_INSERT, values))
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
        return await self._contents.read(ArtifactContent(ref.sha256, ref.size), offset=offset, limit=limit)

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
