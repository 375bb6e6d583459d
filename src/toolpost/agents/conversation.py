"""A planner's conversation: what the model was told and said, and the calls of its that wait for a person."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from toolpost.contracts.errors import ToolOutputError
from toolpost.contracts.outcomes import Paused
from toolpost.runtime.model_messages import model_text
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.secrets import harmless

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.outcomes import Outcome


class WantedCall(NamedTuple):
    """A call that the model asked for; `key` is its own for life, `pending_id` the question that it waits for."""

    id: str
    name: str
    arguments: Any
    key: str
    pending_id: str = ""


@dataclass(slots=True, kw_only=True)
class Conversation:
    """All that a run needs to go on in another process."""

    user: str
    run_id: str
    key: str
    messages: list[dict[str, Any]]
    waiting: list[WantedCall] = field(default_factory=list[WantedCall])
    turns: int = 0
    calls: int = 0

    @classmethod
    def kept(cls, data: Mapping[str, Any]) -> Self:
        """The conversation that `to_dict` was called on."""
        members: dict[str, Any] = {**data, "waiting": [WantedCall(*call) for call in data["waiting"]]}
        return cls(**members)

    def to_dict(self) -> dict[str, Any]:
        """The conversation as plain data."""
        return asdict(self)

    def hear(self, reply: object) -> tuple[Any, list[WantedCall]]:
        """Take in the model's message: what it says, and the calls that it wants made."""
        message = _as_json(reply)
        asked: Any = message.get("tool_calls") or []
        if not is_array(asked) or not all(is_object(call) for call in asked):
            raise ToolOutputError("the language model's tool_calls are not a list of objects")
        self.turns += 1
        self.messages.append({**message, "role": "assistant"})
        return message.get("content"), [self._wanted(call) for call in asked]

    def _wanted(self, call: dict[str, Any]) -> WantedCall:
        self.calls += 1
        key = f"{self.key}_{self.calls}"  # models use one id for several calls
        told: Any = call.get("function")
        function: dict[str, Any] = told if is_object(told) else {}
        call["id"] = str(call.get("id") or key)
        return WantedCall(call["id"], str(function.get("name")), function.get("arguments"), key)

    def note(self, call: WantedCall, outcome: Outcome) -> None:
        """Show the model what came of a call, or remember what it waits for."""
        if isinstance(outcome, Paused):
            self.waiting.append(call._replace(pending_id=outcome.pending_id))
        else:
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": model_text(outcome)})

    def settle(self, outcome: Outcome) -> None:
        """The first call that waits has come to an end, or to another question."""
        call, *others = self.waiting
        self.waiting = []
        self.note(call, outcome)
        self.waiting += others


def opening(query: str, instructions: str, llm_context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages that a run begins with."""
    known = json.dumps(harmless(llm_context), ensure_ascii=False, default=str)
    told = f"{instructions}\n\nWhat is known:\n{known}" if llm_context else instructions
    return [{"role": "system", "content": told}, {"role": "user", "content": query}]


def _as_json(reply: object) -> dict[str, Any]:
    """A copy that can be kept; what could not be is refused before anything is called."""
    try:
        message: Any = json.loads(json.dumps(reply, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        hint = "; `complete` returns a dict, of a client's own object its model_dump(exclude_none=True)"
        raise ToolOutputError(f"the language model's message is not JSON: {error}{hint}") from error
    if not is_object(message):
        raise ToolOutputError(f"the language model's message is a {type(reply).__name__}, not an object")
    return message
