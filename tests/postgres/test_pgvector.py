"""Documents in a real PostgreSQL with pgvector: what is near comes first, and what is wrong is told."""

import asyncio
import json
import socket
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.builtin.pages import as_json, site
from tests.postgres.server import PASSWORD, PostgreSQL
from toolpost import Completed, Toolbox
from toolpost.builtin.providers.document_stores import PgVectorProvider
from toolpost.builtin.providers.protocols import Filters, RetrievedChunks
from toolpost.configuration.settings import Settings
from toolpost.contracts.errors import (
    ConfigError,
    ToolAuthError,
    ToolClientError,
    ToolConnectionError,
    ToolServerError,
    ToolTimeoutError,
)

pytestmark = pytest.mark.programs

TABLE = "CREATE TABLE chunks (id text, text text, source text, metadata jsonb, embedding vector(2))"
ROWS: list[tuple[str, str | None, dict[str, Any] | None, str | None]] = [
    ("north", "Go north.", {"lang": "en", "tags": ["a"]}, "[0,2]"),
    ("east", "Go east.", {"lang": "en", "tags": []}, "[1,0]"),
    ("nordost", "Nach Nordosten.", {"lang": "de", "year": 2024}, "[1,1]"),
    ("south", None, None, "[0,-1]"),
    ("nowhere", "A vector without a direction.", {"lang": "en"}, "[0,0]"),
    ("unread", "Not embedded yet.", {"lang": "en"}, None),
]


@pytest.fixture
def chunks(url: str) -> str:
    """Where there is a table of chunks; the vectors are points of the compass."""
    with psycopg.connect(url, autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone():
            pytest.skip(f"NOT TESTED: PostgreSQL {connection.info.server_version // 10_000} is here without pgvector")
        connection.execute("CREATE EXTENSION vector")
        connection.execute(TABLE)
        for key, text, facts, vector in ROWS:
            values = (key, text, f"{key}.md", None if facts is None else Jsonb(facts), vector)
            connection.execute("INSERT INTO chunks VALUES (%s, %s, %s, %s, %s)", values)
    return url


def facing(*vector: float) -> Callable[[str], Awaitable[list[float]]]:
    async def embed(_: str) -> list[float]:
        return list(vector)

    return embed


def store(url: str, *vector: float, **facts: Any) -> PgVectorProvider:
    return PgVectorProvider(url=url, embed=facing(*(vector or (0, 1))), **{"table": "chunks", **facts})


async def found(url: str, equal: dict[str, Any] | None = None, *vector: float, **facts: Any) -> list[str]:
    answer = await store(url, *vector, **facts).retrieve("where?", Filters(equal=equal or {}))
    return [chunk["id"] for chunk in answer.chunks]


@pytest.mark.req("NPRV-01", "NPRV-02")
async def test_the_nearest_comes_first_with_what_is_known_of_it(chunks: str) -> None:
    answer = await store(chunks).retrieve("where?", Filters(limit=4))

    assert isinstance(answer, RetrievedChunks)
    assert [chunk["id"] for chunk in answer.chunks] == ["north", "nordost", "east", "south"]
    assert [chunk["score"] for chunk in answer.chunks] == pytest.approx([1, 0.5**0.5, 0, -1])
    assert answer.chunks[0]["metadata"] == {"lang": "en", "tags": ["a"]}
    assert (answer.chunks[0]["text"], answer.chunks[0]["source"]) == ("Go north.", "north.md")
    assert (answer.chunks[3]["text"], answer.chunks[3]["metadata"]) == ("", {})


async def test_a_vector_without_a_direction_comes_last_and_one_that_is_not_there_not_at_all(chunks: str) -> None:
    answer = await store(chunks).retrieve("where?", Filters())

    assert [chunk["id"] for chunk in answer.chunks] == ["north", "nordost", "east", "south", "nowhere"]
    assert answer.chunks[-1]["score"] is None


@pytest.mark.parametrize(
    ("equal", "expected"),
    [
        ({"lang": "en"}, ["north", "east", "nowhere"]),
        ({"lang": "de", "year": 2024}, ["nordost"]),
        ({"year": "2024"}, []),
        ({"tags": []}, ["east"]),
        ({"tags": ["a"]}, ["north"]),
        ({"lang": None}, []),
        ({"it's": "'; DROP TABLE chunks; --"}, []),
    ],
    ids=json.dumps,
)
async def test_a_filter_means_exactly_this_value(chunks: str, equal: dict[str, Any], expected: list[str]) -> None:
    assert await found(chunks, equal) == expected


async def test_a_filter_behind_an_approximate_index_still_finds_all_there_is(chunks: str) -> None:
    with psycopg.connect(chunks, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO chunks SELECT n, 'near', '', '{\"lang\": \"fr\"}', ARRAY[n / 1e6, 1]::vector"
            " FROM generate_series(1, 1000) AS n"
        )
        connection.execute("CREATE INDEX ON chunks USING hnsw (embedding vector_cosine_ops)")

    assert await found(f"{chunks}&options=-c%20enable_seqscan%3Doff", {"lang": "de"}) == ["nordost"]


async def test_an_empty_table_has_nothing_to_say(chunks: str) -> None:
    with psycopg.connect(chunks, autocommit=True) as connection:
        connection.execute("TRUNCATE chunks")

    assert await found(chunks) == []


@pytest.mark.parametrize(
    ("name", "created"), [("my.chunks", "my.chunks"), ("Odd Name%s", '"Odd Name%s"'), ('a"b', '"a""b"')]
)
async def test_a_table_is_found_by_its_schema_and_whatever_its_name(chunks: str, name: str, created: str) -> None:
    with psycopg.connect(chunks, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA my")
        connection.execute(f"CREATE TABLE {created} AS SELECT * FROM chunks WHERE id = 'east'".encode())

    assert await found(chunks, table=name) == ["east"]


@pytest.mark.parametrize(
    "table",
    [
        "chunks; DROP TABLE chunks; --",
        'chunks" WHERE true; DROP TABLE chunks; --',
        "(SELECT * FROM chunks) AS c",
        "chunks, pg_sleep(60)",
        "chunks -- ",
        "",
        "a\0b",
    ],
)
async def test_what_is_no_name_of_a_table_is_none_and_never_a_statement(chunks: str, table: str) -> None:
    with pytest.raises(ToolClientError, match="refused the question"):
        await found(chunks, table=table)

    assert len(await found(chunks)) == 5


async def test_a_view_that_would_change_something_is_refused(chunks: str) -> None:
    with psycopg.connect(chunks, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION gone() RETURNS vector LANGUAGE sql AS 'DELETE FROM chunks RETURNING embedding'"
        )
        connection.execute("CREATE VIEW trap AS SELECT id, text, source, metadata, gone() AS embedding FROM chunks")

    with pytest.raises(ToolClientError, match="read-only transaction"):
        await found(chunks, table="trap")
    assert len(await found(chunks)) == 5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DROP TABLE chunks", 'relation "chunks" does not exist; name one that exists as index'),
        ("ALTER TABLE chunks DROP COLUMN source", "it needs the columns id, text, source, metadata"),
        ("ALTER TABLE chunks ALTER metadata TYPE json", "it needs the columns id, text, source, metadata"),
        ("ALTER TABLE chunks ALTER embedding TYPE vector(3) USING '[1,2,3]'", "different vector dimensions 3 and 2"),
        (
            "ALTER TABLE chunks ALTER embedding TYPE real[] USING '{}'; DROP EXTENSION vector",
            'type "vector" does not exist; run in that database: CREATE EXTENSION vector',
        ),
    ],
    ids=["missing table", "missing column", "column of another type", "wrong dimension", "missing extension"],
)
async def test_a_table_that_cannot_be_asked_is_reported_with_what_to_do(chunks: str, change: str, said: str) -> None:
    with psycopg.connect(chunks, autocommit=True) as connection:
        connection.execute(change.encode())

    with pytest.raises(ToolClientError, match="refused the question") as refused:
        await found(chunks, {"lang": "en"})

    assert said in str(refused.value)
    assert "table 'chunks', a vector of 2 numbers" in str(refused.value)
    assert not refused.value.is_retryable


async def test_a_vector_of_another_model_is_reported_as_that(chunks: str) -> None:
    with pytest.raises(ToolClientError, match="the embedding model that the table was filled with"):
        await found(chunks, {}, 1, 2, 3)


async def test_a_user_without_the_right_to_read_is_reported(postgres: PostgreSQL, chunks: str) -> None:
    with psycopg.connect(chunks, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")

    with pytest.raises(ToolClientError, match="grant this user the right"):
        await found(postgres.url(user="reader"))


async def test_the_password_comes_from_beside_the_url_and_a_wrong_one_is_no_failure_of_the_network(
    postgres: PostgreSQL, chunks: str
) -> None:
    there = postgres.tcp_url()

    assert (await found(there, password=PASSWORD))[0] == "north"
    for password in ("", "canary-wrong"):
        with pytest.raises(ToolAuthError, match="check its url, and apiKey") as refused:
            await found(there, password=password)
        assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:canary%secret@127.0.0.1:1/db",
        "postgresql://ann:canary secret@127.0.0.1:1/db",
        "postgresql://ann:can@nary@127.0.0.1:1/db",
        "postgresql://ann:canary/secret@127.0.0.1:1/db",
    ],
)
async def test_a_password_that_breaks_the_url_is_not_reported(url: str) -> None:
    with pytest.raises(ConfigError, match="write %40 for @") as refused:
        await found(url)

    assert "nary" not in "".join(traceback.format_exception(refused.value))
    assert "nary" not in repr(store(url, password="canary"))


async def test_a_server_that_is_not_there_was_certainly_not_asked() -> None:
    with pytest.raises(ToolConnectionError, match="could not be reached") as refused:
        await found("postgresql://ann:canary@127.0.0.1:1/db")

    assert refused.value.sent is False
    assert "canary" not in str(refused.value)


@asynccontextmanager
async def waiting(url: str, *, timeout_s: float = 60) -> AsyncIterator[tuple["asyncio.Task[list[str]]", Any]]:
    """A question that waits because somebody else holds the table, and a connection that looks on."""
    async with (
        await psycopg.AsyncConnection.connect(url) as holder,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as watcher,
    ):
        await holder.execute("LOCK TABLE chunks IN ACCESS EXCLUSIVE MODE")
        asked = asyncio.create_task(found(url, timeout_s=timeout_s))
        while not await _backends(watcher):
            await asyncio.sleep(0.01)
        yield asked, watcher


async def _backends(watcher: Any) -> list[int]:
    cursor = await watcher.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return [pid for (pid,) in await cursor.fetchall()]


async def _gone(watcher: Any) -> bool:
    """Whether nobody waits in the server any more, within reason."""
    async with asyncio.timeout(30):
        while await _backends(watcher):
            await asyncio.sleep(0.01)
    return True


async def test_a_question_that_is_cancelled_ends_in_the_server_too(chunks: str) -> None:
    async with waiting(chunks) as (asked, watcher):
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert await _gone(watcher)


async def test_a_question_that_takes_too_long_ends_in_the_server_too(chunks: str) -> None:
    async with waiting(chunks, timeout_s=1) as (asked, watcher):
        with pytest.raises(ToolTimeoutError, match="has 'chunks' an index for 2 dimensions"):
            await asked
        assert await _gone(watcher)


@pytest.mark.parametrize(
    ("ending", "error", "said"),
    [
        ("pg_terminate_backend", ToolConnectionError, "broke: terminating connection"),
        ("pg_cancel_backend", ToolTimeoutError, "ended the question"),
    ],
)
async def test_a_server_that_ends_a_question_in_the_middle_is_reported(
    chunks: str, ending: str, error: type[Exception], said: str
) -> None:
    async with waiting(chunks) as (asked, watcher):
        (backend,) = await _backends(watcher)
        await watcher.execute(f"SELECT {ending}(%s)", (backend,))
        with pytest.raises(error, match=said):
            await asked


@asynccontextmanager
async def relay(postgres: PostgreSQL, reaches: Callable[[bytes], bool]) -> AsyncIterator[int]:
    """A way to the server that breaks at the first message that is not let through."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, questions = await asyncio.open_connection("127.0.0.1", postgres.port)
        back = asyncio.create_task(_copy(answers, writer))
        while (data := await reader.read(65536)) and reaches(data):
            questions.write(data)
        questions.close()
        await back
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)


async def test_a_connection_that_breaks_in_the_middle_may_have_been_used(postgres: PostgreSQL, chunks: str) -> None:
    async with relay(postgres, lambda message: b"SELECT id, text" not in message) as port:
        with pytest.raises(ToolConnectionError, match="the connection to pgvector broke") as broken:
            await found(postgres.tcp_url(port=port), password=PASSWORD)

    assert broken.value.sent is True
    assert broken.value.is_retryable


async def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ToolConnectionError, match=r"accepted no connection within 0\.2 s") as late:
            await found(f"postgresql://127.0.0.1:{port}/db", timeout_s=0.2)

    assert late.value.sent is False


async def test_a_server_that_has_no_room_may_have_some_later(chunks: str) -> None:
    body = "$$ BEGIN RAISE SQLSTATE '53100' USING MESSAGE = 'no space left'; END $$"
    with psycopg.connect(chunks, autocommit=True) as connection:
        connection.execute(f"CREATE FUNCTION full_disk() RETURNS vector LANGUAGE plpgsql AS {body}".encode())
        connection.execute("ALTER TABLE chunks DROP COLUMN embedding")
        connection.execute("CREATE VIEW full_one AS SELECT *, full_disk() AS embedding FROM chunks")

    with pytest.raises(ToolServerError, match="pgvector failed: no space left") as failed:
        await found(chunks, table="full_one")

    assert failed.value.is_retryable


async def test_without_its_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg.conninfo", None)

    with pytest.raises(ConfigError, match=r"run: pip install 'psycopg\[binary\]'"):
        await found("postgresql://127.0.0.1:1/db")


@pytest.mark.req("NPRV-02")
async def test_by_configuration_alone_retrieve_asks_the_model_and_then_the_table(chunks: str) -> None:
    answer = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [1, 0]}], "model": "small"}
    async with site({"/v1/embeddings": as_json(answer)}) as model:
        link = {
            "provider": "pgvector",
            "url": chunks,
            "index": "chunks",
            "embeddings": {"url": f"{model.url}/v1/embeddings", "model": "small", "api_key": "k3y"},
        }
        tools = {"retrieval": {"chain": [link]}}
        settings = Settings.model_validate(
            {"data_dir": None, "policy": "exploratory", "builtins": ["retrieve"], "tools": tools}
        )
        async with Toolbox(settings=settings) as box:
            outcome = await box.call("retrieve", {"query": "where?", "filters": {"lang": "en"}, "limit": 1})

    assert isinstance(outcome, Completed)
    assert [chunk["id"] for chunk in outcome.content["chunks"]] == ["east"]
    assert json.loads(model.last.body) == {"model": "small", "input": "where?"}
