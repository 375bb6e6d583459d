"""Artifacts in memory."""

from __future__ import annotations

from hashlib import sha256
from itertools import islice
from typing import TypeAlias

from msgspec.structs import replace

from toolpost.contracts.ids import IdMaker
from toolpost.contracts.storage import ArtifactRef
from toolpost.stores.memory.paging import behind

Refs: TypeAlias = list[ArtifactRef]  # The store's own `list` hides the builtin one.


class MemoryArtifactStore:
    """Artifact contents by hash, references by id."""

    def __init__(self, ids: IdMaker) -> None:
        self._ids = ids
        self.contents: dict[str, bytes] = {}
        self.refs: dict[str, ArtifactRef] = {}

    async def put(self, data: bytes, ref: ArtifactRef) -> ArtifactRef:
        digest = sha256(data).hexdigest()
        stored_ref = replace(ref, id=self._ids.make("art"), sha256=digest, size=len(data))
        self.contents.setdefault(digest, bytes(data))
        self.refs[stored_ref.id] = stored_ref
        return stored_ref

    async def info(self, artifact_id: str, *, tenant: str | None, user: str | None = None) -> ArtifactRef | None:
        ref = self.refs.get(artifact_id)
        return ref if ref and tenant in (None, ref.tenant) and user in (None, ref.user) else None

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
        start = max(0, offset)
        return self.contents[ref.sha256][start : None if limit is None else start + max(0, limit)]

    async def list(
        self,
        *,
        tenant: str | None = None,
        user: str | None = None,
        run_id: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Refs:
        theirs = [r for r in reversed(self.refs.values()) if tenant in (None, r.tenant) and user in (None, r.user)]
        newest_first = behind(sorted(theirs, key=lambda ref: ref.created_at, reverse=True), before)
        return list(islice((ref for ref in newest_first if run_id in (None, ref.run_id)), max(0, limit)))
