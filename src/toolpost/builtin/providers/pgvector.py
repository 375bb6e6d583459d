"""PostgreSQL with pgvector as a store of documents: the nearest vectors, filtered by their metadata."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolpost.builtin.providers.protocols import RetrievedChunk, RetrievedChunks
from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolServerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from toolpost.builtin.providers.protocols import Filters

    Embed = Callable[[str], Awaitable[Sequence[float]]]

_CONNECT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PgVectorProvider:
    """A table with the columns id, text, source, metadata (jsonb) and embedding (vector)."""

    url: str
    table: str
    embed: Embed
    password: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """Who it is."""
        return "pgvector"

    async def retrieve(self, query: str, filters: Filters) -> RetrievedChunks:
        """The pieces whose vectors are nearest to the question's, by the cosine of the angle between them."""
        vector = json.dumps([float(value) for value in await self.embed(query)])
        rows = await self._rows(vector, json.dumps(dict(filters.equal)), filters.limit)
        chunks = tuple(
            RetrievedChunk(id=str(key), text=body or "", source=source or "", score=float(score), metadata=facts or {})
            for key, body, source, facts, score in rows
        )
        return RetrievedChunks(query=query, provider=self.name, chunks=chunks)

    async def close(self) -> None:
        """Nothing is kept open between questions."""

    async def _rows(self, vector: str, equal: str, limit: int) -> list[tuple[Any, ...]]:
        psycopg = _psycopg()
        asked = psycopg.sql.SQL(_NEAREST).format(table=psycopg.sql.Identifier(*self.table.split(".")))
        password = {"password": self.password} if self.password else {}
        try:
            connecting = psycopg.AsyncConnection.connect(
                self.url, connect_timeout=_CONNECT_S, autocommit=True, **password
            )
            async with await connecting as connection:
                cursor = await connection.execute(asked, {"vector": vector, "equal": equal, "limit": limit})
                rows: list[tuple[Any, ...]] = await cursor.fetchall()
                return rows
        except psycopg.OperationalError as failed:
            raise ToolConnectionError(f"pgvector could not be reached: {_said(failed)}", sent=False) from failed
        except psycopg.Error as failed:
            message = f"pgvector refused the question: {_said(failed)}; is {self.table!r} a table as it must be?"
            raise ToolServerError(message, code="store_refused") from failed


def _psycopg() -> Any:
    try:
        import_module("psycopg.sql")
        return import_module("psycopg")
    except ImportError as missing:
        raise ConfigError("pgvector needs psycopg; run: pip install 'psycopg[binary]'") from missing


_NEAREST = """
    SELECT id, text, source, metadata, 1 - (embedding <=> %(vector)s::vector) AS score
    FROM {table} WHERE metadata @> %(equal)s::jsonb
    ORDER BY embedding <=> %(vector)s::vector LIMIT %(limit)s
"""


def _said(failed: BaseException) -> str:
    return str(failed).strip().splitlines()[0] if str(failed).strip() else type(failed).__name__
