"""What `llm=` may be."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agents.models.provider import KEY, Provider
from toolpost.agents.models import litellm_model
from toolpost.errors import ConfigError
from toolpost.models import AnthropicMessages, OpenAIChat, OpenAIResponses, open_model, request_reply
from toolpost.testing import ScriptedModel

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(autouse=True)
def _own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "TOOLPOST_MODEL_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_an_object_is_passed_through_and_anything_else_is_refused() -> None:
    model = ScriptedModel()

    assert open_model(model) is model
    for wrong in (7, None, ScriptedModel, object()):
        with pytest.raises(ConfigError, match="llm is the name of a model, or a ChatModel"):
            open_model(wrong)  # type: ignore[arg-type] # what is refused


async def test_a_url_names_a_server_and_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-openai-alone")
    async with Provider(["one", "two"]) as provider:
        await request_reply(open_model(f"{provider.url}/chat/completions#small"), HELLO)
        monkeypatch.setenv("TOOLPOST_MODEL_KEY", KEY)
        await request_reply(open_model(f"{provider.url}#small"), HELLO)

    assert [body["model"] for body in provider.bodies] == ["small", "small"]
    assert [request.all("authorization") for request in provider.site.requests] == [[], [f"Bearer {KEY}"]]


@pytest.mark.parametrize(
    ("name", "kind", "variable"),
    [
        ("openai-chat/gpt-4", OpenAIChat, "OPENAI_API_KEY"),
        ("openai-responses/gpt-5", OpenAIResponses, "OPENAI_API_KEY"),
        ("anthropic-messages/claude", AnthropicMessages, "ANTHROPIC_API_KEY"),
    ],
)
def test_the_direct_names_need_the_key_of_their_provider(
    name: str, kind: Any, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=f"needs a key: set {variable}"):
        open_model(name)
    monkeypatch.setenv(variable, KEY)
    model = open_model(name)

    assert isinstance(model, kind)
    assert repr(model) == f"{kind.__name__}({name.partition('/')[2]!r}, base_url={kind.dialect.base_url!r})"


async def test_a_base_url_of_the_environment_gets_the_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Provider(["one", "two"]) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
        await request_reply(OpenAIChat("m"), HELLO)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        await request_reply(OpenAIChat("m"), HELLO)

    assert [request.all("authorization") for request in provider.site.requests] == [[], [f"Bearer {KEY}"]]


@pytest.mark.parametrize("url", ["http://u:p@h/v1", "http://h/v1?key=1", "http://[/v1", "http://127.1/v1"])
def test_a_url_that_hides_a_key_or_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="the base URL of a model"):
        OpenAIChat("m", base_url=url)


@pytest.mark.parametrize("name", ["", " ", "openai-chat", "openai-chat/", "litellm/"])
def test_a_name_without_a_model_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="names no model"):
        open_model(name)


def test_any_other_name_is_litellms_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm_model, "find_spec", lambda _: None)

    for name in ("mistral/small", "litellm/gpt-4"):
        model = name.removeprefix("litellm/")
        with pytest.raises(ConfigError, match=rf"'{model}' needs litellm; run: pip install 'toolpost\[agents\]'"):
            open_model(name)


@pytest.mark.parametrize(
    "name", ["gpt-4", "gpt-4o", "chatgpt-4o-latest", "o1", "o3-mini", "o4-mini", "claude-opus-4-1"]
)
async def test_well_known_names_need_no_litellm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm_model, "find_spec", lambda _: None)
    kind, dialect = (AnthropicMessages, "ANTHROPIC") if name.startswith("claude-") else (OpenAIChat, "OPENAI")
    with pytest.raises(ConfigError, match=f"needs a key: set {dialect}_API_KEY"):
        open_model(name)
    async with Provider(["hello"]) as provider:
        monkeypatch.setenv(f"{dialect}_BASE_URL", provider.site.url if kind is AnthropicMessages else provider.url)
        monkeypatch.setenv(f"{dialect}_API_KEY", KEY)
        model = open_model(name)
        reply = await request_reply(model, HELLO)
    assert isinstance(model, kind)
    assert reply.message["content"] == "hello"
    assert provider.bodies[0]["model"] == name
