"""Artifacts: metadata in SQLite, bytes in sealed files named by their hash."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from dataclasses import astuple, fields, replace
from hashlib import sha256
from typing import Any, TypeAlias

from toolpost.contracts.storage import ArtifactRef
from toolpost.stores.contents import ContentFiles
from toolpost.stores.reader import Reader
from toolpost.stores.writer import Writer

Refs: TypeAlias = list[ArtifactRef]  # The store's own `list` hides the builtin one.

_NAMES = tuple(field.name for field in fields(ArtifactRef))
_COLUMNS = ", ".join(_NAMES)
_INSERT = f"INSERT INTO artifacts ({_COLUMNS}) VALUES ({', '.join('?' * len(_NAMES))})"  # noqa: S608 - constants
_SELECT = f"SELECT {_COLUMNS} FROM artifacts WHERE (:tenant IS NULL OR tenant = :tenant)"  # noqa: S608 - constants


class SQLiteArtifactStore:
    """An id is random, so that holding some bytes does not give the id of another's."""

    def __init__(self, writer: Writer, reader: Reader, files: ContentFiles) -> None:
        self._writer = writer
        self._reader = reader
        self._files = files

    async def put(self, data: bytes, ref: ArtifactRef) -> ArtifactRef:
        digest = await asyncio.to_thread(lambda: sha256(data).hexdigest())
        kept = replace(ref, id=new_artifact_id(), sha256=digest, size=len(data))
        done = False
        while not done:  # Pruning may remove the file before the row names it; then it is written once more.
            await asyncio.to_thread(self._files.write, digest, data)
            done = await self._writer.submit(self._insertion(kept))
        return kept

    async def info(self, artifact_id: str, *, tenant: str | None) -> ArtifactRef | None:
        sql = _SELECT + " AND id = :id"
        values = {"tenant": tenant, "id": artifact_id}
        row = await self._reader.query(lambda db: db.execute(sql, values).fetchone())
        return ref_of(row) if row else None

    async def read(self, artifact_id: str, *, tenant: str | None, offset: int = 0, limit: int | None = None) -> bytes:
        ref = await self.info(artifact_id, tenant=tenant)
        if ref is None:
            raise KeyError(artifact_id)
        return await asyncio.to_thread(self._files.read, ref.sha256, size=ref.size, offset=offset, limit=limit)

    async def list(self, *, tenant: str | None = None, run_id: str | None = None, limit: int = 100) -> Refs:
        sql = _SELECT + (" AND run_id = :run_id" if run_id is not None else "")
        sql += " ORDER BY created_at DESC, rowid DESC LIMIT :limit"
        values = {"tenant": tenant, "run_id": run_id, "limit": max(0, limit)}
        return await self._reader.query(lambda db: [ref_of(row) for row in db.execute(sql, values)])

    def _insertion(self, ref: ArtifactRef) -> Callable[[sqlite3.Connection], bool]:
        def work(db: sqlite3.Connection) -> bool:
            """Files are pruned within transactions too, so what is there now stays."""
            if not self._files.holds(ref.sha256, ref.size):
                return False
            db.execute(_INSERT, astuple(ref))
            return True

        return work


def new_artifact_id() -> str:
    """An id that nobody can guess."""
    return f"art_{os.urandom(16).hex()}"


def ref_of(row: tuple[Any, ...]) -> ArtifactRef:
    """The reference that a row stands for."""
    return ArtifactRef(**dict(zip(_NAMES, row, strict=True)))
