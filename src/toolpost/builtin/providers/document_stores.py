"""Document stores: SQLite in one file, OpenSearch, and PostgreSQL with pgvector."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import re
import sqlite3
import sys
import threading
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

from toolpost.builtin.providers.api import Api, finite_number, first_text, objects
from toolpost.builtin.providers.protocols import Filters, RetrievedChunk, RetrievedChunks
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts import errors
from toolpost.http.response_errors import sanitize
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.stores.durable_files import make_private_folder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from toolpost.builtin.web_client import WebClient

    Embed = Callable[[str], Awaitable[Sequence[float]]]

T = TypeVar("T")

_WORD = re.compile(r"\w+")
_MOST_WORDS = 64
_BUSY_S = 10.0
_TABLE = """
    CREATE VIRTUAL TABLE IF NOT EXISTS chunks
    USING fts5(id UNINDEXED, text, source UNINDEXED, metadata UNINDEXED, tokenize = "unicode61 remove_diacritics 2")
"""
_MATCHING_CHUNKS = (
    "SELECT id, text, source, metadata, -bm25(chunks) FROM chunks WHERE chunks MATCH ? ORDER BY bm25(chunks)"
)
_LONGEST_LIST = 50  # a longer list is a vector, useless to a reader
_TIMEOUT_S = 10.0
_NEAREST = """
    SELECT id, text, source, metadata, 1 - (embedding <=> %(vector)s::vector) AS score
    FROM {table} WHERE embedding IS NOT NULL {matching}
    ORDER BY embedding <=> %(vector)s::vector LIMIT %(limit)s
"""
# The first condition can use an index; the second is exact, because every list contains [].
_MATCHING = """
    AND metadata @> %(equal)s::jsonb AND NOT EXISTS (
        SELECT FROM jsonb_each(%(equal)s::jsonb) AS wanted WHERE metadata -> wanted.key IS DISTINCT FROM wanted.value
    )
"""
# An approximate index is filtered after the search; without this setting it stops with too few rows. Older versions of
# the extension ignore the setting.
_GO_ON = "SELECT set_config('hnsw.iterative_scan', 'strict_order', true)"
_COLUMNS = "it needs the columns id, text, source, metadata (jsonb) and embedding (vector)"
_HINTS = {
    "22000": "is it the embedding model that the table was filled with?",
    "3F000": "name one that exists as index",
    "42501": "grant this user the right to select from it",
    "42703": _COLUMNS,
    "42704": "run in that database: CREATE EXTENSION vector",
    "42883": _COLUMNS,
    "42P01": "name one that exists as index",
}
_QUERY_CANCELED = "57014"
_BROKEN = ("08", "57")  # classes of SQLSTATE: the connection, the operator
_PASSING = ("40", "53", "55", "58", "XX")  # rollback, resources, state, system, internal
_NOT_LET_IN = re.compile(r"FATAL: .*(authentication|pg_hba\.conf)|no password supplied")


class StoredDocument(NamedTuple):
    """A text to store; it replaces a document with the same ID."""

    id: str
    text: str
    source: str = ""
    metadata: Mapping[str, Any] = {}


class EmbeddedRetriever:
    """Full-text search in a SQLite file (FTS5), ranked by BM25; the file is created at first use."""

    name = "embedded"

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._turn = threading.Lock()

    async def add(self, documents: Iterable[StoredDocument]) -> int:
        """Store documents, all or none, and return their number."""
        rows = [
            (_encodable(one.id), _encodable(one.text), _encodable(one.source), json.dumps(dict(one.metadata)))
            for one in documents
        ]

        def work(connection: sqlite3.Connection) -> int:
            connection.executemany("DELETE FROM chunks WHERE id = ?", [(row[0],) for row in rows])
            connection.executemany("INSERT INTO chunks (id, text, source, metadata) VALUES (?, ?, ?, ?)", rows)
            return len(rows)

        return await self._do(work)

    async def remove(self, ids: Iterable[str]) -> int:
        """Delete documents by ID and return the number of deleted ones."""
        keys = [(_encodable(key),) for key in ids]
        return await self._do(
            lambda connection: connection.executemany("DELETE FROM chunks WHERE id = ?", keys).rowcount
        )

    async def retrieve(self, query: str, filters: Filters) -> RetrievedChunks:
        """Retrieve the chunks with some of the words of the query, best first."""
        words = _WORD.findall(query)[:_MOST_WORDS]
        expression = " OR ".join(f'"{word}"' for word in dict.fromkeys(words))
        chunks = await self._do(lambda connection: _matching(connection, expression, filters)) if words else ()
        return RetrievedChunks(query=query, provider=self.name, chunks=chunks)

    async def close(self) -> None:
        """Close the file after the running operation."""
        if self._connection is not None or self._turn.locked():
            await run_cancellable(self._close)

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one transaction in a thread, one at a time."""

        def turn(_: Callable[[], None]) -> T:
            with self._turn:
                try:
                    connection = self._open()
                    with connection:
                        return work(connection)
                except (sqlite3.Error, OSError, ValueError) as failed:
                    if isinstance(failed, errors.ConfigError):
                        raise
                    where = self.path or "in memory"
                    raise errors.StoreError(
                        f"the embedded store ({where}) failed: {failed}; check its file"
                    ) from failed

        return await run_cancellable(turn)

    def _close(self, _: Callable[[], None]) -> None:
        with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        if self.path is not None:
            make_private_folder(self.path.parent)
            self.path.touch(mode=0o600)
        connection = sqlite3.connect(self.path or ":memory:", timeout=_BUSY_S, check_same_thread=False)
        try:
            connection.execute(_TABLE)
        except sqlite3.Error as failed:
            connection.close()
            if "fts5" in str(failed):
                raise errors.ConfigError(
                    "this Python's SQLite has no FTS5; use another provider to retrieve"
                ) from failed
            raise
        self._connection = connection
        return connection


def _encodable(text: str) -> str:
    """Replace lone surrogates, which JSON may contain and SQLite cannot store."""
    return text.encode("utf-8", "replace").decode()


def _matching(connection: sqlite3.Connection, expression: str, filters: Filters) -> tuple[RetrievedChunk, ...]:
    chunks: list[RetrievedChunk] = []
    for key, text, source, facts, score in connection.execute(_MATCHING_CHUNKS, (expression,)):
        metadata = as_object(json.loads(facts))
        if all(metadata.get(name) == value for name, value in filters.equal.items()):
            chunks.append(RetrievedChunk(id=key, text=text, source=source, score=score, metadata=metadata))
        if len(chunks) >= filters.limit:
            break
    return tuple(chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSearchProvider:
    """Full-text search of an index; the origin of a document is in `source`, `url` or `path`."""

    name = "opensearch"
    web: WebClient
    url: str = field(repr=False)
    index: str
    user: str = ""
    key: str = field(default="", repr=False)
    text_field: str = "text"

    async def retrieve(self, query: str, filters: Filters) -> RetrievedChunks:
        terms = [{"terms" if is_array(value) else "term": {name: value}} for name, value in filters.equal.items()]
        matching = {"match": {self.text_field: {"query": query}}}
        body = {"size": filters.limit, "query": {"bool": {"must": [matching], "filter": terms}}}
        api = self._api()
        response = await api.post(f"/{quote(self.index, safe='')}/_search", body)
        hits = response.get("hits") if is_object(response) else None
        if not is_object(hits) or not is_array(hits.get("hits")):
            raise api.unreadable("something that is not a list of hits")
        chunks = [self._chunk(hit) for hit in objects(hits, "hits")]
        return RetrievedChunks(query=query, provider=self.name, chunks=tuple(chunks[: filters.limit]))

    async def close(self) -> None:
        await self.web.close()

    def _chunk(self, hit: dict[str, Any]) -> RetrievedChunk:
        document = as_object(hit.get("_source"))
        return RetrievedChunk(
            id=first_text(hit, "_id"),
            text=first_text(document, self.text_field),
            source=first_text(document, "source", "url", "path") or f"{self.index}/{first_text(hit, '_id')}",
            score=finite_number(hit, "_score"),
            metadata={name: value for name, value in document.items() if self._is_fact(name, value)},
        )

    def _is_fact(self, name: str, value: Any) -> bool:
        return name != self.text_field and not (is_array(value) and len(value) > _LONGEST_LIST)

    def _api(self) -> Api:
        headers: dict[str, str] = {}
        if self.user:
            headers["Authorization"] = f"Basic {base64.b64encode(f'{self.user}:{self.key}'.encode()).decode()}"
        elif self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        secrets = (self.key,) if self.key else ()
        return Api(name=self.name, web=self.web, url=self.url.rstrip("/"), headers=headers, secrets=secrets)


@dataclass(frozen=True, slots=True, kw_only=True)
class PgVectorProvider:
    """Vector search of a table with the columns id, text, source, metadata (jsonb) and embedding (vector)."""

    name = "pgvector"
    url: str = field(repr=False)  # a password may be in it
    table: str
    embed: Embed
    password: str = field(default="", repr=False)
    timeout_s: float = _TIMEOUT_S

    async def retrieve(self, query: str, filters: Filters) -> RetrievedChunks:
        """Retrieve the chunks with the smallest cosine distance to the query."""
        psycopg = _psycopg()
        options = self._options(psycopg)
        vector = await self.embed(query)
        rows = await self._rows(psycopg, options, list(vector), filters)
        return RetrievedChunks(query=query, provider=self.name, chunks=tuple(_row_chunk(row) for row in rows))

    async def close(self) -> None:
        """Close the embedding API's connections; database connections end with each query."""
        close: Callable[[], Awaitable[None]] | None = getattr(self.embed, "close", None)
        if close is not None:
            await close()

    def _options(self, psycopg: Any) -> dict[str, Any]:
        """Parse the URL; the error does not quote it, because the invalid part may be the password."""
        message = "the url of pgvector is none of PostgreSQL's; write %40 for @, %2F for / and %25 for % in a password"
        try:
            options: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(self.url)
        except psycopg.Error:
            raise errors.ConfigError(message) from None
        if "@" in str(options.get("host", "")) or re.search(r"[^\d,]", str(options.get("port", ""))):
            raise errors.ConfigError(message)
        return {**options, "password": self.password} if self.password else options

    async def _rows(
        self, psycopg: Any, options: dict[str, Any], vector: list[float], filters: Filters
    ) -> list[tuple[Any, ...]]:
        connection = await self._connect(psycopg, options)
        try:
            async with asyncio.timeout(self.timeout_s), connection:
                return await self._nearest(psycopg.sql, connection, vector, filters)
        except TimeoutError:
            raise self._too_late(f"did not answer within {self.timeout_s:g} s", vector) from None
        except psycopg.Error as failed:
            state = failed.sqlstate or ("08000" if isinstance(failed, psycopg.OperationalError) else "")
            raise self._refusal(failed, state, vector) from failed

    async def _connect(self, psycopg: Any, options: dict[str, Any]) -> Any:
        try:
            async with asyncio.timeout(self.timeout_s):
                connection = await psycopg.AsyncConnection.connect(**options, autocommit=True)
        except TimeoutError:
            message = f"pgvector accepted no connection within {self.timeout_s:g} s; check its url"
            raise errors.ToolConnectionError(message, sent=False) from None
        except psycopg.Error as failed:
            reason = self._reason(failed)
            if _NOT_LET_IN.search(reason):
                message = (
                    f"pgvector rejected the connection: {reason}; check its url, and apiKey, which is the password"
                )
                raise errors.ToolAuthError(message) from failed
            raise errors.ToolConnectionError(f"pgvector could not be reached: {reason}", sent=False) from failed
        return connection

    async def _nearest(self, sql: Any, connection: Any, vector: list[float], filters: Filters) -> list[tuple[Any, ...]]:
        table = sql.Identifier(*self.table.replace("%", "%%").split("."))  # a lone % would be a placeholder
        statement = sql.SQL(_NEAREST).format(table=table, matching=sql.SQL(_MATCHING if filters.equal else ""))
        values = {"vector": json.dumps(vector), "equal": json.dumps(dict(filters.equal)), "limit": filters.limit}
        await connection.set_read_only(True)  # the table may be a view that calls functions
        async with connection.transaction():
            if filters.equal:
                await connection.execute(_GO_ON)
            cursor = await connection.execute(statement, values)
            rows: list[tuple[Any, ...]] = await cursor.fetchall()
            return rows

    def _too_late(self, what: str, vector: list[float]) -> errors.ToolTimeoutError:
        message = f"pgvector {what}; has {self.table!r} an index for {len(vector)} dimensions?"
        return errors.ToolTimeoutError(message, timeout_ms=self.timeout_s * 1000)

    def _refusal(self, failed: Exception, state: str, vector: list[float]) -> errors.ToolNodeError:
        reason = self._reason(failed)
        if state == _QUERY_CANCELED:
            return self._too_late("ended the question before it had an answer", vector)
        if state.startswith(_BROKEN):
            return errors.ToolConnectionError(f"the connection to pgvector broke: {reason}")
        if state.startswith(_PASSING):
            return errors.ToolServerError(f"pgvector failed: {reason}")
        subject = f"table {self.table!r}, a vector of {len(vector)} numbers"
        details = "; ".join(part for part in (reason, _HINTS.get(state)) if part)
        return errors.ToolClientError(f"pgvector refused the question ({subject}): {details}", code="store_refused")

    def _reason(self, failed: BaseException) -> str:
        line = str(failed).strip().partition("\n")[0]
        return sanitize(line, [self.password] if self.password else []) or type(failed).__name__


def _psycopg() -> Any:
    try:
        for part in ("psycopg.conninfo", "psycopg.sql"):
            import_module(part)
        return import_module("psycopg")
    except ImportError as missing:
        raise errors.ConfigError("pgvector needs psycopg; run: pip install 'psycopg[binary]'") from missing


def _row_chunk(row: tuple[Any, ...]) -> RetrievedChunk:
    key, text, source, facts, score = row
    # A zero vector has no direction: PostgreSQL returns NaN, which JSON cannot represent.
    near = float(score) if math.isfinite(score) else None
    metadata = as_object(facts)
    return RetrievedChunk(id=str(key), text=str(text or ""), source=str(source or ""), score=near, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingApi:
    """Client of an endpoint like OpenAI's `/v1/embeddings`, one text at a time."""

    web: WebClient
    url: str
    model: str
    key: str = field(default="", repr=False)

    async def __call__(self, text: str) -> list[float]:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        secrets = (self.key,) if self.key else ()
        api = Api(name="embeddings", web=self.web, url=self.url, headers=headers, secrets=secrets)
        items = objects(await api.post("", {"model": self.model, "input": text}), "data")
        vector = items[0].get("embedding") if items else None
        if not is_array(vector) or not vector or not all(map(_is_number, vector)):
            message = f"the embeddings API answered without a vector; check its URL and its model {self.model!r}"
            raise errors.ToolServerError(message, code="answer_unreadable")
        return [float(value) for value in vector]

    async def close(self) -> None:
        await self.web.close()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
