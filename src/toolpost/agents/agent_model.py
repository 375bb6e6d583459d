"""The model of an agent: prompts within its context, with the tools of a registry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from toolpost.agents.conversation import PlannerCall, advice
from toolpost.agents.models.replies import request_reply
from toolpost.agents.steps import ActionResult, PlanStep
from toolpost.contracts.errors import ToolError
from toolpost.runtime.arguments import read_arguments
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.chat import ChatModel, ModelReply
    from toolpost.policy.redaction import Redactor

CONTEXT_TOKENS = 100_000
_CHARS_PER_TOKEN = 4
_SHARE = 0.6  # of the context; the rest is for tools, the reply, and errors of the estimate
_CUT = "\n[… cut: this conversation is too long]"


class AgentModel:
    """A model with the tools of a registry. Prompts are trimmed to 60 % of `context_tokens`."""

    def __init__(
        self,
        model: ChatModel,
        registry: ToolRegistry,
        redactor: Redactor,
        *,
        context_tokens: int = CONTEXT_TOKENS,
        timeout_s: float = 120.0,
    ) -> None:
        self.most_chars = int(context_tokens * _CHARS_PER_TOKEN * _SHARE)
        self._model = model
        self._registry = registry
        self.redactor = redactor
        self._timeout_s = timeout_s

    async def prompt(self, messages: Sequence[Mapping[str, Any]]) -> ModelReply:
        """Request the next message of a conversation, which may call the tools of the registry."""
        return await self.request(messages, tools=[tool.to_openai() for tool in self._registry.to_llm_tools()])

    async def request(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        response_schema: Mapping[str, Any] | None = None,
    ) -> ModelReply:
        """Request a reply to messages, trimmed to the context; a ToolError is redacted."""
        try:
            return await request_reply(
                self._model,
                trim_messages(messages, self.most_chars),
                tools=tools,
                response_schema=response_schema,
                timeout_s=self._timeout_s,
            )
        except ToolError as error:
            error.conceal(self.redactor.message)
            raise

    def step(self, call: PlannerCall) -> PlanStep:
        """Convert a call of the model to a step."""
        registry = self._registry
        name = registry.find(call.name).spec.name if registry.has(call.name) else call.name
        params: Any = read_arguments(call.arguments) if isinstance(call.arguments, str) else call.arguments
        readable = params if is_object(params) else str(call.arguments or "")  # the call then reports the error
        return PlanStep(id=call.key, tool_name=name, params=readable)

    def result_message(self, call_id: str, action: ActionResult) -> dict[str, Any]:
        """Return the message with the result of a step, and with advice if it failed."""
        text = action.text if action.success else f"{action.text}\n{advice(action.error_code)}"
        return {"role": "tool", "tool_call_id": call_id, "content": self.redactor.text(text)}


def reply_text(reply: ModelReply) -> str:
    """Return the text of a reply; empty if it has none."""
    content: Any = reply.message.get("content")
    return content if isinstance(content, str) else ""


def trim_messages(messages: Sequence[Mapping[str, Any]], most_chars: int) -> list[dict[str, Any]]:
    """Return a conversation of at most `most_chars` characters, without its oldest turns.

    Leading system messages remain. A turn is dropped as a whole, because a provider rejects a tool result without its
    call.
    """
    whole = [{name: value for name, value in message.items() if name != "metadata"} for message in messages]
    head = next((at for at, message in enumerate(whole) if message["role"] != "system"), len(whole))
    room = most_chars - sum(map(_size, whole[:head]))
    latest: list[list[dict[str, Any]]] = []
    for turn in reversed(_turns(whole[head:])):
        room -= sum(map(_size, turn))
        if room < 0 and latest:
            break
        latest.append(turn)
    turns = [message for turn in reversed(latest) for message in turn]
    return [*whole[:head], *(_shorten(message, most_chars) for message in turns)]


def message_chars(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of characters of a conversation."""
    return sum(map(_size, messages))


def _turns(messages: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    turns: list[list[dict[str, Any]]] = []
    for message in messages:
        if message["role"] == "tool" and turns:
            turns[-1].append(message)
        else:
            turns.append([message])
    return turns


def _size(message: Mapping[str, Any]) -> int:
    calls: Any = message.get("tool_calls")
    return len(str(message.get("content") or "")) + (len(json.dumps(calls, ensure_ascii=False)) if calls else 0)


def _shorten(message: dict[str, Any], most_chars: int) -> dict[str, Any]:
    content: Any = message.get("content")
    if not isinstance(content, str) or len(content) <= most_chars:
        return message
    return {**message, "content": content[:most_chars] + _CUT}
