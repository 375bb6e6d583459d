"""PostgreSQL with pgvector as a store of documents: the nearest vectors, filtered by their metadata."""

from __future__ import annotations

import asyncio
import json
import math
import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolpost.builtin.providers.protocols import RetrievedChunk, RetrievedChunks
from toolpost.contracts.errors import (
    ConfigError,
    ToolAuthError,
    ToolClientError,
    ToolConnectionError,
    ToolServerError,
    ToolTimeoutError,
)
from toolpost.schema.jsontypes import is_object
from toolpost.web.failures import presentable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from toolpost.builtin.providers.protocols import Filters
    from toolpost.contracts.errors import ToolNodeError

    Embed = Callable[[str], Awaitable[Sequence[float]]]

_TIMEOUT_S = 10.0
_NEAREST = """
    SELECT id, text, source, metadata, 1 - (embedding <=> %(vector)s::vector) AS score
    FROM {table} WHERE embedding IS NOT NULL {matching}
    ORDER BY embedding <=> %(vector)s::vector LIMIT %(limit)s
"""
# The first condition can use an index, and the second is exact: to contain [] is true of every list.
_MATCHING = """
    AND metadata @> %(equal)s::jsonb AND NOT EXISTS (
        SELECT FROM jsonb_each(%(equal)s::jsonb) AS wanted WHERE metadata -> wanted.key IS DISTINCT FROM wanted.value
    )
"""
# An approximate index is asked for the nearest first and filtered after: without this it stops with too few. A version
# of the extension that does not know it takes no notice.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PgVectorProvider:
    """A table with the columns id, text, source, metadata (jsonb) and embedding (vector)."""

    url: str = field(repr=False)  # a password may be in it
    table: str
    embed: Embed
    password: str = field(default="", repr=False)
    timeout_s: float = _TIMEOUT_S

    @property
    def name(self) -> str:
        """Who it is."""
        return "pgvector"

    async def retrieve(self, query: str, filters: Filters) -> RetrievedChunks:
        """The pieces whose vectors are nearest to the question's, by the cosine of the angle between them."""
        psycopg = _psycopg()
        options = self._options(psycopg)
        vector = await self.embed(query)
        rows = await self._rows(psycopg, options, list(vector), filters)
        return RetrievedChunks(query=query, provider=self.name, chunks=tuple(_chunk(row) for row in rows))

    async def close(self) -> None:
        """Close the embedder's connections; none to the database is kept open between questions."""
        close: Callable[[], Awaitable[None]] | None = getattr(self.embed, "close", None)
        if close is not None:
            await close()

    def _options(self, psycopg: Any) -> dict[str, Any]:
        """How to connect; a URL that is no URL is not quoted, because what is wrong may be the password in it."""
        message = "the url of pgvector is none of PostgreSQL's; write %40 for @, %2F for / and %25 for % in a password"
        try:
            options: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(self.url)
        except psycopg.Error:
            raise ConfigError(message) from None
        if "@" in str(options.get("host", "")) or re.search(r"[^\d,]", str(options.get("port", ""))):
            raise ConfigError(message)
        return {**options, "password": self.password} if self.password else options

    async def _rows(
        self, psycopg: Any, options: dict[str, Any], vector: list[float], filters: Filters
    ) -> list[tuple[Any, ...]]:
        connection = await self._connected(psycopg, options)
        try:
            async with asyncio.timeout(self.timeout_s), connection:
                return await self._nearest(psycopg.sql, connection, vector, filters)
        except TimeoutError:
            raise self._too_late(f"did not answer within {self.timeout_s:g} s", vector) from None
        except psycopg.Error as failed:
            state = failed.sqlstate or ("08000" if isinstance(failed, psycopg.OperationalError) else "")
            raise self._refusal(failed, state, vector) from failed

    async def _connected(self, psycopg: Any, options: dict[str, Any]) -> Any:
        try:
            async with asyncio.timeout(self.timeout_s):
                connection = await psycopg.AsyncConnection.connect(**options, autocommit=True)
        except TimeoutError:
            message = f"pgvector did not let us in within {self.timeout_s:g} s; check its url"
            raise ToolConnectionError(message, sent=False) from None
        except psycopg.Error as failed:
            said = self._said(failed)
            if _NOT_LET_IN.search(said):
                message = f"pgvector did not let us in: {said}; check its url, and apiKey, which is the password"
                raise ToolAuthError(message) from failed
            raise ToolConnectionError(f"pgvector could not be reached: {said}", sent=False) from failed
        return connection

    async def _nearest(self, sql: Any, connection: Any, vector: list[float], filters: Filters) -> list[tuple[Any, ...]]:
        table = sql.Identifier(*self.table.replace("%", "%%").split("."))  # a lone % would be a placeholder
        asked = sql.SQL(_NEAREST).format(table=table, matching=sql.SQL(_MATCHING if filters.equal else ""))
        values = {"vector": json.dumps(vector), "equal": json.dumps(dict(filters.equal)), "limit": filters.limit}
        await connection.set_read_only(True)  # what is called a table may be a view with functions in it
        async with connection.transaction():
            if filters.equal:
                await connection.execute(_GO_ON)
            cursor = await connection.execute(asked, values)
            rows: list[tuple[Any, ...]] = await cursor.fetchall()
            return rows

    def _too_late(self, what: str, vector: list[float]) -> ToolTimeoutError:
        message = f"pgvector {what}; has {self.table!r} an index for {len(vector)} dimensions?"
        return ToolTimeoutError(message, timeout_ms=self.timeout_s * 1000)

    def _refusal(self, failed: Exception, state: str, vector: list[float]) -> ToolNodeError:
        said = self._said(failed)
        if state == _QUERY_CANCELED:
            return self._too_late("ended the question before it had an answer", vector)
        if state.startswith(_BROKEN):
            return ToolConnectionError(f"the connection to pgvector broke: {said}")
        if state.startswith(_PASSING):
            return ToolServerError(f"pgvector failed: {said}")
        asked = f"table {self.table!r}, a vector of {len(vector)} numbers"
        told = "; ".join(part for part in (said, _HINTS.get(state)) if part)
        return ToolClientError(f"pgvector refused the question ({asked}): {told}", code="store_refused")

    def _said(self, failed: BaseException) -> str:
        line = str(failed).strip().partition("\n")[0]
        return presentable(line, [self.password] if self.password else []) or type(failed).__name__


def _psycopg() -> Any:
    try:
        for part in ("psycopg.conninfo", "psycopg.sql"):
            import_module(part)
        return import_module("psycopg")
    except ImportError as missing:
        raise ConfigError("pgvector needs psycopg; run: pip install 'psycopg[binary]'") from missing


def _chunk(row: tuple[Any, ...]) -> RetrievedChunk:
    key, text, source, facts, score = row
    # A vector of zeros has no direction, so it is near to nothing: PostgreSQL says NaN, which no JSON can say.
    near = float(score) if math.isfinite(score) else None
    metadata: dict[str, Any] = facts if is_object(facts) else {}
    return RetrievedChunk(id=str(key), text=str(text or ""), source=str(source or ""), score=near, metadata=metadata)
