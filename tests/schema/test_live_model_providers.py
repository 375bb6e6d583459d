"""Model providers accept compiled tools, asked only when somebody says so: TOOLPOST_LIVE=1, and the key of each."""

import asyncio
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx2
import pytest

from bench.openapi_conversion import BASE_URL
from tests.specs import no_network, octokit
from toolpost.contracts.spec import ToolDefinition
from toolpost.models import ToolCompiler
from toolpost.schema.provider_dialects import Provider
from toolpost.sources.openapi.loader import read_api
from toolpost.sources.openapi.model_view import fit_to_budget
from toolpost.sources.openapi.spec import tool_spec

pytestmark = pytest.mark.skipif(
    os.environ.get("TOOLPOST_LIVE") != "1", reason="set TOOLPOST_LIVE=1 to send tools to model providers"
)

HELLO = [{"role": "user", "content": "Reply with one word."}]
SENT = 100  # tools; some providers accept no more than 128 in a request


class Asked(NamedTuple):
    """The request of one provider: the variable of its key, its address, its headers and its body."""

    provider: Provider
    variable: str
    url: str
    headers: Callable[[str], dict[str, str]]
    body: Callable[[list[ToolDefinition]], dict[str, Any]]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def strict(tool: ToolDefinition) -> dict[str, Any]:
    return {"type": "function", "function": {**tool._asdict(), "strict": True}}


ASKED = [
    Asked(
        "openai",
        "OPENAI_API_KEY",
        "https://api.openai.com/v1/chat/completions",
        bearer,
        lambda tools: {"model": "gpt-5-mini", "messages": HELLO, "tools": [tool.to_openai() for tool in tools]},
    ),
    Asked(
        "openai-strict",
        "OPENAI_API_KEY",
        "https://api.openai.com/v1/chat/completions",
        bearer,
        lambda tools: {"model": "gpt-5-mini", "messages": HELLO, "tools": [strict(tool) for tool in tools]},
    ),
    Asked(
        "anthropic",
        "ANTHROPIC_API_KEY",
        "https://api.anthropic.com/v1/messages",
        lambda key: {"x-api-key": key, "anthropic-version": "2023-06-01"},
        lambda tools: {
            "model": "claude-haiku-4-5",
            "max_tokens": 16,
            "messages": HELLO,
            "tools": [tool.to_anthropic() for tool in tools],
        },
    ),
    Asked(
        "gemini",
        "GEMINI_API_KEY",
        "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash:generateContent",
        lambda key: {"x-goog-api-key": key},
        lambda tools: {
            "contents": [{"role": "user", "parts": [{"text": "Reply with one word."}]}],
            "tools": [{"functionDeclarations": [tool.to_gemini() for tool in tools]}],
        },
    ),
    Asked(
        "bedrock",
        "AWS_BEARER_TOKEN_BEDROCK",
        "https://bedrock-runtime.us-east-1.amazonaws.com/model/amazon.nova-lite-v1:0/converse",
        bearer,
        lambda tools: {
            "messages": [{"role": "user", "content": [{"text": "Reply with one word."}]}],
            "toolConfig": {"tools": [tool.to_bedrock() for tool in tools]},
        },
    ),
    Asked(
        "mistral",
        "MISTRAL_API_KEY",
        "https://api.mistral.ai/v1/chat/completions",
        bearer,
        lambda tools: {
            "model": "mistral-small-latest",
            "messages": HELLO,
            "tools": [tool.to_openai() for tool in tools],
        },
    ),
]


def compiled_tools(provider: Provider) -> list[ToolDefinition]:
    """Tools of a real API, the largest first."""
    api = asyncio.run(read_api(str(octokit()), fetch=no_network, base_url=BASE_URL))
    specs = [tool_spec(operation, source="api") for operation in api.operations]
    shown = [
        ToolDefinition(spec.name[:60].replace(".", "__"), spec.description, fit_to_budget(spec.input_schema))
        for spec in sorted(specs, key=lambda spec: -len(str(spec.input_schema)))[:SENT]
    ]
    return ToolCompiler(provider).compile(shown).definitions


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.provider)
def test_a_provider_accepts_compiled_tools(asked: Asked) -> None:
    key = os.environ.get(asked.variable, "")
    if not key:
        pytest.skip(f"set {asked.variable} to send tools to {asked.provider}")

    reply = httpx2.post(
        asked.url, headers=asked.headers(key), json=asked.body(compiled_tools(asked.provider)), timeout=60
    )

    assert reply.status_code == 200, reply.text
