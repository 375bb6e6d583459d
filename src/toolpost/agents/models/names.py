"""Models by name: which client a name selects."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeGuard

from toolpost.agents.models.anthropic_messages import AnthropicMessages
from toolpost.agents.models.openai import OpenAIChat, OpenAIResponses
from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from toolpost.agents.models.http_model import HttpChatModel
    from toolpost.contracts.chat import ChatModel

KEY_VARIABLE = "TOOLPOST_MODEL_KEY"
"""The environment variable with the key of a model that a URL names."""

_DIRECT: dict[str, type[HttpChatModel]] = {
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "anthropic-messages": AnthropicMessages,
}
_LITELLM = "litellm"
# Prefixes of the two providers' models, which need no litellm.
_KNOWN: dict[tuple[str, ...], type[HttpChatModel]] = {
    ("gpt-", "chatgpt-", "o1", "o3", "o4"): OpenAIChat,
    ("claude-",): AnthropicMessages,
}


def open_model(llm: str | ChatModel, *, proxy: str | None = None) -> ChatModel:
    """Return the chat model that `llm` names or is; raise ConfigError for anything else.

    `http://127.0.0.1:8080/v1#NAME` is a server with the Chat Completions API, with an optional key in
    TOOLPOST_MODEL_KEY. `openai-chat/NAME`, `openai-responses/NAME` and `anthropic-messages/NAME` are direct clients,
    with the provider's variables for the key and the base URL. So are names that begin with `gpt-`, `chatgpt-`, `o1`,
    `o3` or `o4` (Chat Completions), and with `claude-` (Messages). Any other name is litellm's, as is `litellm/NAME`.
    `proxy` applies to all but litellm.
    """
    if isinstance(llm, str):
        return _open_named(llm.strip(), proxy)
    if not _is_chat_model(llm):
        what = "an object with `async complete(messages, *, tools)`"
        raise ConfigError(f"llm is the name of a model, or a ChatModel, {what}, not {type(llm).__name__}")
    return llm


def _open_named(name: str, proxy: str | None) -> ChatModel:
    if name.lower().startswith(("http://", "https://")):
        url, _, model = name.partition("#")
        key = os.environ.get(KEY_VARIABLE) or None
        return OpenAIChat(model or "default", base_url=url, api_key=key, proxy=proxy)
    prefix, _, model = name.partition("/")
    if prefix in _DIRECT and model:
        return _DIRECT[prefix](model, proxy=proxy)
    if not name or prefix in _DIRECT or name in (_LITELLM, f"{_LITELLM}/"):
        raise ConfigError(f"llm={name!r} names no model; write one as gpt-4, {next(iter(_DIRECT))}/gpt-4 or URL#NAME")
    if "/" not in name:
        for beginnings, known in _KNOWN.items():
            if name.startswith(beginnings):
                return known(name, proxy=proxy)
    from toolpost.agents.models.litellm_model import LiteLLMChat  # noqa: PLC0415 - an extra, unused by most runs

    return LiteLLMChat(name.removeprefix(f"{_LITELLM}/"))


def _is_chat_model(llm: object) -> TypeGuard[ChatModel]:
    return not isinstance(llm, type) and callable(getattr(llm, "complete", None))
