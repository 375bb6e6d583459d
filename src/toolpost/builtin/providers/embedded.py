"""A store of documents in one file, without a server: SQLite's own full-text search."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from toolpost.builtin.providers.protocols import RetrievedChunk, RetrievedChunks
from toolpost.builtin.workers import in_worker
from toolpost.contracts.errors import ConfigError, StoreError
from toolpost.schema.jsontypes import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from toolpost.builtin.providers.protocols import Filters

T = TypeVar("T")

_WORD = re.compile(r"\w+")
_MOST_WORDS = 64
_BUSY_S = 10.0
_TABLE = """
    CREATE VIRTUAL TABLE IF NOT EXISTS chunks
    USING fts5(id UNINDEXED, text, source UNINDEXED, metadata UNINDEXED, tokenize = "unicode61 remove_diacritics 2")
"""
_FOUND = "SELECT id, text, source, metadata, -bm25(chunks) FROM chunks WHERE chunks MATCH ? ORDER BY bm25(chunks)"


class Document(NamedTuple):
    """A piece of text to find again; one of the same id is replaced."""

    id: str
    text: str
    source: str = ""
    metadata: Mapping[str, Any] = {}


class EmbeddedRetriever:
    """Finds texts by their words, ranked by BM25; the file is made when it is first used."""

    name = "embedded"

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._turn = threading.Lock()

    async def add(self, documents: Iterable[Document]) -> int:
        """Keep documents, all or none; says how many."""
        rows = [
            (_storable(one.id), _storable(one.text), _storable(one.source), json.dumps(dict(one.metadata)))
            for one in documents
        ]

        def work(connection: sqlite3.Connection) -> int:
            connection.executemany("DELETE FROM chunks WHERE id = ?", [(row[0],) for row in rows])
            connection.executemany("INSERT INTO chunks (id, text, source, metadata) VALUES (?, ?, ?, ?)", rows)
            return len(rows)

        return await self._do(work)

    async def remove(self, ids: Iterable[str]) -> int:
        """Forget documents; says how many there were."""
        keys = [(_storable(key),) for key in ids]
        return await self._do(lambda found: found.executemany("DELETE FROM chunks WHERE id = ?", keys).rowcount)

    async def retrieve(self, query: str, filters: Filters) -> RetrievedChunks:
        """The pieces that have some of the words of the question, the best first."""
        words = _WORD.findall(query)[:_MOST_WORDS]
        asked = " OR ".join(f'"{word}"' for word in dict.fromkeys(words))
        chunks = await self._do(lambda found: _matching(found, asked, filters)) if words else ()
        return RetrievedChunks(query=query, provider=self.name, chunks=chunks)

    async def close(self) -> None:
        """Close the file, once whoever is at it has finished."""
        if self._connection is not None or self._turn.locked():
            await in_worker(self._close)

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """One piece of work in one transaction, one at a time."""

        def turn(_: Callable[[], None]) -> T:
            with self._turn:
                try:
                    connection = self._opened()
                    with connection:
                        return work(connection)
                except (sqlite3.Error, OSError, ValueError) as failed:
                    if isinstance(failed, ConfigError):
                        raise
                    where = self.path or "in memory"
                    raise StoreError(f"the embedded store ({where}) failed: {failed}; check its file") from failed

        return await in_worker(turn)

    def _close(self, _: Callable[[], None]) -> None:
        with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path or ":memory:", timeout=_BUSY_S, check_same_thread=False)
        try:
            connection.execute(_TABLE)
        except sqlite3.Error as failed:
            connection.close()
            if "fts5" in str(failed):
                raise ConfigError("this Python's SQLite has no FTS5; use another provider to retrieve") from failed
            raise
        self._connection = connection
        return connection


def _storable(text: str) -> str:
    """A text that SQLite can keep: half a character, as JSON may hold one, is none."""
    return text.encode("utf-8", "replace").decode()


def _matching(connection: sqlite3.Connection, asked: str, filters: Filters) -> tuple[RetrievedChunk, ...]:
    chunks: list[RetrievedChunk] = []
    for key, text, source, facts, score in connection.execute(_FOUND, (asked,)):
        told = json.loads(facts)
        metadata: dict[str, Any] = told if is_object(told) else {}
        if all(metadata.get(name) == value for name, value in filters.equal.items()):
            chunks.append(RetrievedChunk(id=key, text=text, source=source, score=score, metadata=metadata))
        if len(chunks) >= filters.limit:
            break
    return tuple(chunks)
