"""Models by litellm, with a stand-in for its one function; `make test-litellm` runs the real one."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from toolpost.agents.models import litellm_model
from toolpost.agents.models.retries import RETRY
from toolpost.errors import ToolAuthError, ToolConnectionError, ToolTimeoutError
from toolpost.models import LiteLLMChat, Usage, open_model, request_reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HELLO = [{"role": "user", "content": "hello"}]
KEY = "sk-litellm-0123456789"
QUICK = RETRY.model_copy(update={"wait_exponential_min_s": 0.01})
FINE = [{"choices": [{"delta": {"content": "Fine."}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1000}}]


class Chunks:
    """A stream as litellm gives it: objects with `model_dump`, and why the provider ended it."""

    def __init__(self, chunks: list[Any], *, finished: str | None) -> None:
        self._chunks = iter(chunks)
        self.received_finish_reason = finished

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        chunk = next(self._chunks, None)
        if chunk is None:
            raise StopAsyncIteration
        return SimpleNamespace(model_dump=lambda: chunk)


class StandIn(SimpleNamespace):
    """litellm, as far as it is used."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(answers=list(answers), requests=[])

    async def acompletion(self, **request: Any) -> Chunks:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cost_per_token(self, *, model: str, prompt_tokens: int, completion_tokens: int) -> tuple[float, float]:
        if model == "unknown":
            raise ValueError(model)
        return prompt_tokens * 1e-6, completion_tokens * 2e-6


class Refused(Exception):  # noqa: N818 - as clients name theirs
    status_code = 401


class Timeout(Exception):  # noqa: N818 - as litellm names it
    pass


class APIConnectionError(Exception):
    pass


def install(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> StandIn:
    stand_in = StandIn(*answers)
    monkeypatch.setitem(sys.modules, "litellm", stand_in)
    monkeypatch.setattr(litellm_model, "find_spec", lambda _: stand_in)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    return stand_in


async def test_a_name_is_asked_by_litellm_and_costs_what_its_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    litellm = install(monkeypatch, *(Chunks(FINE, finished="stop") for _ in range(3)))

    reply = await request_reply(open_model("litellm/gpt-4"), HELLO)
    unknown = await LiteLLMChat("unknown", api_key=KEY, options={"temperature": 0}).complete(HELLO)
    priced = await request_reply(LiteLLMChat("unknown", prices=(3.0, 0.0)), HELLO)

    assert reply == ({"role": "assistant", "content": "Fine."}, Usage(1000, 0, 0.001), "stop", "gpt-4")
    assert "cost" not in unknown["usage"]
    assert priced.usage.cost == 0.003
    sent = litellm.requests[1]
    assert (sent["model"], sent["api_key"], sent["temperature"], sent["stream"]) == ("unknown", KEY, 0, True)


async def test_a_stream_that_litellm_ended_itself_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Chunks(FINE, finished=None))

    with pytest.raises(ToolConnectionError, match="before the reply was complete"):
        await request_reply(LiteLLMChat("gpt-4"), HELLO)


async def test_what_litellm_raises_is_a_tool_error_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "another-secret-42")
    install(monkeypatch, Refused(f"bad {KEY} another-secret-42"), Timeout("late"))
    model = LiteLLMChat("gpt-4", api_key=KEY, retry=QUICK)

    with pytest.raises(ToolAuthError, match="'gpt-4' by litellm: Refused: bad") as raised:
        await request_reply(model, HELLO)
    with pytest.raises(ToolTimeoutError, match="late"):
        await request_reply(model, HELLO)
    assert KEY not in f"{raised.value}{model!r}{json.dumps(raised.value.to_dict())}"
    assert "another-secret-42" not in str(raised.value)


async def test_a_connection_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    litellm = install(monkeypatch, APIConnectionError("down"), Chunks(FINE, finished="stop"))

    assert (await request_reply(LiteLLMChat("gpt-4", retry=QUICK), HELLO)).message["content"] == "Fine."
    assert len(litellm.requests) == 2
