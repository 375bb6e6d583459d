"""Contents of artifacts in the data folder, for the parts of a store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeAlias

from toolpost.contracts.errors import StoreError
from toolpost.stores.artifact_contents import ArtifactContent
from toolpost.stores.content_files import ContentFiles
from toolpost.stores.sql.database import SharedDatabase, SQLConnection

AddRow: TypeAlias = Callable[[SQLConnection], object]
# Few enough that other writes do not wait long for one step.
CONTENTS_A_STEP = 500
_NAMED = "SELECT 1 FROM artifacts WHERE sha256 = :sha256"


class ContentStore(Protocol):
    """The place of the contents of artifacts. A content without an artifact is deleted."""

    async def store(self, content: ArtifactContent, data: bytes, add_row: AddRow) -> None:
        """Store a content; `add_row` adds the row of its artifact in the transaction in which it is complete."""
        ...

    async def read(self, content: ArtifactContent, *, offset: int, limit: int | None) -> bytes:
        """Read a part of a content without loading the rest."""
        ...

    async def collect(self, now: float) -> int:
        """Delete contents without an artifact, and the remains of interrupted writes; return their number."""
        ...

    async def release(self, hashes: list[str]) -> int:
        """Delete those of these contents that have no artifact; return their number."""
        ...

    async def reencrypt(self) -> dict[str, int]:
        """Re-encrypt contents of older keys; return the number of `artifacts`, and of `unreadable` ones."""
        ...


class StoredFiles:
    """Contents in encrypted files.

    A content is complete before the row of its artifact exists, and is deleted after the last row of it. The lock of a
    content keeps these two apart: a process that ends in between leaves a content without a row, which is collected.
    """

    def __init__(self, shared: SharedDatabase, files: ContentFiles) -> None:
        self._shared = shared
        self._files = files

    async def store(self, content: ArtifactContent, data: bytes, add_row: AddRow) -> None:
        done = False
        while not done:  # the file may be collected before the row exists; then it is written again
            await asyncio.to_thread(self._files.write, content.sha256, data)
            done = await self._shared.write(partial(self._add, content=content, add_row=add_row))

    async def read(self, content: ArtifactContent, *, offset: int, limit: int | None) -> bytes:
        sha256, size = content
        return await asyncio.to_thread(self._files.read, sha256, size=size, offset=offset, limit=limit)

    async def collect(self, now: float) -> int:
        await asyncio.to_thread(self._files.sweep, now)
        names = await asyncio.to_thread(lambda: set(self._files.names()))
        if not names:
            return 0
        hashes = await self._shared.read(lambda db: {row[0] for row in db.execute("SELECT sha256 FROM artifacts")})
        return await self.release(sorted(names - hashes))

    async def release(self, hashes: list[str]) -> int:
        steps = [hashes[start : start + CONTENTS_A_STEP] for start in range(0, len(hashes), CONTENTS_A_STEP)]
        return sum([await self._shared.write(partial(self._delete_unnamed, hashes=step)) for step in steps])

    async def reencrypt(self) -> dict[str, int]:
        counts = Counter({"artifacts": 0, "unreadable": 0})
        sql = "SELECT DISTINCT sha256, size FROM artifacts"
        for sha256, size in await self._shared.read(lambda db: db.execute(sql).fetchall()):
            try:
                counts["artifacts"] += await asyncio.to_thread(self._files.reencrypt, sha256, size)
            except StoreError:
                counts["unreadable"] += 1
        return dict(counts)

    def _add(self, db: SQLConnection, *, content: ArtifactContent, add_row: AddRow) -> bool:
        """Add the row of an artifact; return False if its content is missing."""
        lock_content(db, content.sha256)
        if not self._files.holds(*content):
            return False
        add_row(db)
        return True

    def _delete_unnamed(self, db: SQLConnection, *, hashes: list[str]) -> int:
        return sum(self._delete_one(db, sha256) for sha256 in hashes)

    def _delete_one(self, db: SQLConnection, sha256: str) -> bool:
        lock_content(db, sha256)
        return not has_artifact(db, sha256) and self._files.delete(sha256)


def lock_content(db: SQLConnection, sha256: str) -> None:
    """Lock a content, so that it is not deleted while an artifact of it is added."""
    db.lock(f"content {sha256}")


def has_artifact(db: SQLConnection, sha256: str) -> bool:
    """Return whether an artifact has a content."""
    return db.execute(_NAMED, {"sha256": sha256}).fetchone() is not None
