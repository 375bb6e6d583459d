"""The providers' own clients read the scripted provider, and `answer_tool_calls` takes their own objects."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from tests.agents.models.provider import Broken, Cut, Provider, Refusal, Status
from toolpost import Settings, Toolbox, tool
from toolpost.testing import tool_calls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.programs  # the client of OpenAI asks a program which system it runs on

PARALLEL = tool_calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))
EMPTY = tool_calls(("greet", ""))


@tool(side_effects="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="pure")
def greet() -> str:
    """Say hello."""
    return "hello"


@pytest.fixture
async def box() -> AsyncIterator[Toolbox]:
    async with Toolbox(tools=[add, greet], settings=Settings(data_dir=None)) as opened:
        yield opened


@pytest.fixture(scope="module")
def clients() -> Any:
    return import_module("tests.agents.models.real_clients")


FINISHES = {
    "Chat": ("stop", "stop", "length"),
    "Responses": ("output_text", "refusal", "max_output_tokens"),
    "Messages": ("end_turn", "refusal", "max_tokens"),
}
each_client = pytest.mark.parametrize("kind", FINISHES)
each_way = pytest.mark.parametrize("way", ["whole", "streamed"])


@each_client
@each_way
async def test_texts_refusals_and_cut_replies_are_read(clients: Any, kind: str, way: str) -> None:
    async with Provider(["It rains.", Refusal("I will not."), Cut("It rai")]) as provider:
        real = getattr(clients, kind)(provider)
        async with real.client:
            facts = [await clients.facts_of(real, way) for _ in range(3)]

    assert [fact[0] for fact in facts] == ["It rains.", "I will not.", "It rai"]
    assert tuple(fact[1] for fact in facts) == FINISHES[kind]
    assert {fact[2] for fact in facts} == {16}


@each_client
@each_way
async def test_the_calls_of_a_clients_own_object_are_answered(clients: Any, kind: str, way: str, box: Toolbox) -> None:
    async with Provider([PARALLEL, EMPTY]) as provider:
        real = getattr(clients, kind)(provider)
        async with real.client:
            replies = [await getattr(real, way)() for _ in range(2)]
    first, second = [await box.answer_tool_calls(reply) for reply in replies]

    assert [outcome.content for outcome in first.outcomes] == [3, 7]  # type: ignore[union-attr] # Completed
    assert [outcome.content for outcome in second.outcomes] == ["hello"]  # type: ignore[union-attr] # Completed


async def test_broken_arguments_in_a_clients_own_object_are_an_outcome(clients: Any, box: Toolbox) -> None:
    async with Provider([tool_calls(("add", '{"a": 1,'))] * 2) as provider:
        chat, responses = clients.Chat(provider), clients.Responses(provider)
        async with chat.client, responses.client:
            replies = [await chat.whole(), await responses.whole()]
    answers = [await box.answer_tool_calls(reply) for reply in replies]

    assert ["JSON" in str(answer.messages) for answer in answers] == [True, True]


@each_client
async def test_a_rate_limit_and_a_stream_that_stops_half_way_are_errors(clients: Any, kind: str) -> None:
    limited = Status(429, '{"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}')
    async with Provider([limited, Broken("It rains.", 3)]) as provider:
        real = getattr(clients, kind)(provider)
        async with real.client:
            with pytest.raises(real.failed):
                await real.whole()
            with pytest.raises(Exception, match=r"closed|complete"):
                await real.streamed()
