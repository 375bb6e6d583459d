"""Ask a scripted provider through the real litellm; `make test-litellm` runs it in a separate environment."""

import asyncio
import os
from pathlib import Path

import litellm  # type: ignore[import-not-found]

from tests.agents.models.provider import KEY, Broken, Cut, Provider, Status
from tests.catalog.test_token_counts import WEATHER
from toolpost.catalog.token_counts import find_counter
from toolpost.errors import ToolAuthError, ToolConnectionError, ToolError
from toolpost.models import LiteLLMChat, ModelReply, request_reply
from toolpost.testing import tool_calls

HELLO = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
LONG = "It rains in Bergen. " * 9


async def main() -> None:
    lines = ["It rains.", tool_calls(("add", {"a": 1}), ("look", {})), Cut("It rai")]
    broken = [Broken(LONG, 9), Broken(LONG, 9, "ends"), Status(401, f'{{"error": {{"message": "bad {KEY}"}}}}')]
    async with Provider([*lines, *broken, Status(429, headers={"retry-after": "0"}), "Fine."]) as provider:
        model = LiteLLMChat("openai/gpt-4o", api_key=KEY, options={"api_base": provider.url})
        text, calls, cut = [await request_reply(model, HELLO, tools=TOOLS) for _ in lines]
        failed = [await failure(model) for _ in broken]
        fine = await model.complete(HELLO)

    assert (text.message["content"], text.usage.total_tokens, text.finish_reason) == ("It rains.", 16, "stop")
    assert text.usage.cost is not None
    assert [call["function"]["name"] for call in calls.message["tool_calls"]] == ["add", "look"]
    assert cut.finish_reason == "length"
    assert isinstance(failed[1], ToolConnectionError)
    assert isinstance(failed[2], ToolAuthError)
    assert KEY not in "".join(map(str, failed))
    assert fine["content"] == "Fine."
    count_tokens()
    print("litellm speaks as it should")


def count_tokens() -> None:
    """tiktoken comes with litellm, which has a copy of the vocabulary."""
    os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(str(litellm.__file__)).parent / "litellm_core_utils" / "tokenizers")
    counter = find_counter()
    assert (counter.tokenizer, counter.count(WEATHER)) == ("o200k_base", 42)


async def failure(model: LiteLLMChat) -> ToolError:
    try:
        reply: ModelReply = await request_reply(model, HELLO)
    except ToolError as error:
        return error
    raise AssertionError(f"a reply where none was whole: {reply}")


if __name__ == "__main__":
    asyncio.run(main())
