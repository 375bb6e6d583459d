"""The conversation of a planner with a model: messages, and the tool calls that wait for a person."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from toolpost.contracts.errors import ToolOutputError
from toolpost.contracts.outcomes import Paused
from toolpost.runtime.model_messages import model_text
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.secrets import drop_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.outcomes import Outcome


class PlannerCall(NamedTuple):
    """A tool call of the model; `key` is its idempotency key, `pending_id` the pending action that it waits for."""

    id: str
    name: str
    arguments: Any
    key: str
    pending_id: str = ""


@dataclass(slots=True, kw_only=True)
class Conversation:
    """State of a run, with all that another process needs to resume it."""

    user: str
    run_id: str
    key: str
    messages: list[dict[str, Any]]
    waiting: list[PlannerCall] = field(default_factory=list[PlannerCall])
    turns: int = 0
    calls: int = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Restore a conversation from what `to_dict` returned."""
        members: dict[str, Any] = {**data, "waiting": [PlannerCall(*call) for call in data["waiting"]]}
        return cls(**members)

    def to_dict(self) -> dict[str, Any]:
        """Return the conversation as JSON data."""
        return asdict(self)

    def add_reply(self, reply: object) -> tuple[Any, list[PlannerCall]]:
        """Add the model's message; return its content and its tool calls."""
        message = _json_copy(reply)
        asked: Any = message.get("tool_calls") or []
        if not is_array(asked) or not all(is_object(call) for call in asked):
            raise ToolOutputError("the language model's tool_calls are not a list of objects")
        self.turns += 1
        self.messages.append({**message, "role": "assistant"})
        return message.get("content"), [self._tool_call(call) for call in asked]

    def _tool_call(self, call: dict[str, Any]) -> PlannerCall:
        self.calls += 1
        key = f"{self.key}_{self.calls}"  # models use one id for several calls
        given: Any = call.get("function")
        function: dict[str, Any] = given if is_object(given) else {}
        call["id"] = str(call.get("id") or key)
        return PlannerCall(call["id"], str(function.get("name")), function.get("arguments"), key)

    def add_outcome(self, call: PlannerCall, outcome: Outcome) -> None:
        """Add the result of a call for the model, or keep the call waiting if it paused."""
        if isinstance(outcome, Paused):
            self.waiting.append(call._replace(pending_id=outcome.pending_id))
        else:
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": model_text(outcome)})

    def settle_first(self, outcome: Outcome) -> None:
        """Replace the first waiting call by its outcome, which may be another pause."""
        call, *others = self.waiting
        self.waiting = []
        self.add_outcome(call, outcome)
        self.waiting += others


def opening_messages(query: str, instructions: str, llm_context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Build the system and user messages that a run begins with."""
    known = json.dumps(drop_secrets(llm_context), ensure_ascii=False, default=str)
    system = f"{instructions}\n\nWhat is known:\n{known}" if llm_context else instructions
    return [{"role": "system", "content": system}, {"role": "user", "content": query}]


def _json_copy(reply: object) -> dict[str, Any]:
    """Return a JSON copy of a message; ToolOutputError, before any call is made, where it could not be stored."""
    try:
        message: Any = json.loads(json.dumps(reply, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        hint = "; `complete` returns a dict, of a client's own object its model_dump(exclude_none=True)"
        raise ToolOutputError(f"the language model's message is not JSON: {error}{hint}") from error
    if not is_object(message):
        raise ToolOutputError(f"the language model's message is a {type(reply).__name__}, not an object")
    return message
