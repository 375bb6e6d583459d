"""Vectors from an endpoint of the shape that OpenAI documents for `/v1/embeddings`."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.builtin.pages import as_html, as_json, provider, site, web_to
from tests.wire.site import Site, reply
from toolpost.builtin.providers.document_stores import EmbeddingApi, PgVectorProvider
from toolpost.builtin.providers.factory import build_retrieve_chain
from toolpost.builtin.providers.protocols import Filters
from toolpost.contracts.errors import (
    ToolAuthError,
    ToolClientError,
    ToolConnectionError,
    ToolError,
    ToolRateLimitError,
    ToolServerError,
)
from toolpost.wire.network import NetworkPolicy

KEY = "canary-key"
VECTOR = [0.0023064255, -0.009327292, 0, -0.0028842222]


def answer(vector: Any) -> dict[str, Any]:
    """As the documentation shows it."""
    return {
        "object": "list",
        "data": [{"object": "embedding", "embedding": vector, "index": 0}],
        "model": "text-embedding-3-small",
        "usage": {"prompt_tokens": 8, "total_tokens": 8},
    }


def refusal(message: str, code: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


@asynccontextmanager
async def model(raw: bytes, *, key: str = KEY) -> AsyncIterator[tuple[EmbeddingApi, Site]]:
    """One that answers every question with this."""
    async with site({"/v1/embeddings": raw}) as there, web_to(there) as web:
        yield EmbeddingApi(web=web, url=f"{there.url}/v1/embeddings", model="small", key=key), there


async def failure(raw: bytes) -> ToolError:
    async with model(raw) as (api, _):
        with pytest.raises(ToolError) as failed:
            await api("tea")
        assert KEY not in f"{failed.value}{failed.value.__cause__!r}{api!r}"
        return failed.value


async def test_a_text_is_sent_with_its_model_and_key_and_its_vector_comes_back() -> None:
    async with model(as_json(answer(VECTOR))) as (api, there):
        vector = await api("Grüner Tee\n🍵")

    assert vector == VECTOR
    assert all(isinstance(value, float) for value in vector)
    assert json.loads(there.last.body) == {"model": "small", "input": "Grüner Tee\n🍵"}
    assert there.last.all("authorization") == [f"Bearer {KEY}"]
    assert there.last.all("content-type") == ["application/json"]


async def test_a_model_on_the_own_machine_needs_no_key() -> None:
    async with model(as_json(answer(VECTOR)), key="") as (api, there):
        await api("tea")

    assert there.last.all("authorization") == []


@pytest.mark.parametrize(
    ("status", "said", "error"),
    [
        (401, refusal(f"Incorrect API key provided: {KEY}.", "invalid_api_key"), ToolAuthError),
        (404, refusal("The model `small` does not exist", "model_not_found"), ToolClientError),
        (400, refusal("This model's maximum context length is 8192 tokens", "too_long"), ToolClientError),
        (429, refusal("Rate limit reached", "rate_limit_exceeded"), ToolRateLimitError),
        (503, refusal("The engine is currently overloaded", "overloaded"), ToolServerError),
    ],
)
async def test_a_refusal_is_reported_in_the_words_of_the_service(
    status: int, said: dict[str, Any], error: type[ToolError]
) -> None:
    failed = await failure(as_json(said, status))

    assert isinstance(failed, error)
    assert f"embeddings answered {status}" in str(failed)
    assert said["error"]["message"].replace(KEY, "").split(":")[0] in str(failed)


@pytest.mark.parametrize(
    "vector",
    [[], None, "AACAPw==", {"0": 1}, [[0.1]], [1, None], [1, "2"], [True], [1, 10**400]],
    ids=["empty", "null", "base64", "object", "nested", "a gap", "text", "a boolean", "too large"],
)
async def test_what_is_no_vector_is_not_taken_for_one(vector: Any) -> None:
    failed = await failure(as_json(answer(vector)))

    assert "answered without a vector; check its URL and its model 'small'" in str(failed)
    assert failed.error_code == "answer_unreadable"


@pytest.mark.parametrize(
    "raw",
    [
        as_json({"object": "list", "data": []}),
        as_json({"embeddings": [[0.1]]}),
        as_json([0.1]),
        as_json(answer([float("nan")])),
        as_json(answer([float("inf")])),
        as_html("<h1>Welcome</h1>"),
        reply(200, b"", content_type="application/json"),
        reply(200, b'{"data": [{"embedding": [0.1', content_type="application/json"),
    ],
    ids=["no data", "another API", "a list", "NaN", "Infinity", "a page", "nothing", "cut off"],
)
async def test_an_answer_of_another_shape_is_reported(raw: bytes) -> None:
    failed = await failure(raw)

    assert isinstance(failed, ToolServerError)
    assert failed.error_code == "answer_unreadable"


async def test_a_store_asks_its_model_with_the_key_that_configuration_names() -> None:
    async with site({"/v1/embeddings": as_json(answer(VECTOR))}) as there:
        named = {"url": f"{there.url}/v1/embeddings", "model": "small", "api_key": KEY}
        link = provider("pgvector", url="postgresql://127.0.0.1:1/db", index="chunks", embeddings=named)
        chain = build_retrieve_chain([link], NetworkPolicy())
        with pytest.raises(ToolConnectionError, match="pgvector could not be reached"):
            await chain.providers[0].retrieve("tea", Filters())
        await chain.close()

    assert there.last.all("authorization") == [f"Bearer {KEY}"]
    assert KEY not in repr(chain.providers[0])


async def test_a_store_closes_the_model_that_it_was_given() -> None:
    class Model:
        closed = 0

        async def __call__(self, text: str) -> list[float]:
            return [1.0]

        async def close(self) -> None:
            self.closed += 1

    model = Model()
    await PgVectorProvider(url="postgresql://127.0.0.1:1/db", table="chunks", embed=model).close()

    assert model.closed == 1
