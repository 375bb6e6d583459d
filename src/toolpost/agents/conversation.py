"""The conversation of a run with its model, and the loop that advances it until there is a result.

Messages have the shape of Chat Completions with native tool calls, in every mode of a model.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar

from msgspec import Struct, field
from msgspec.structs import asdict, fields

from toolpost.contracts.chat import ModelReply, Usage
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.nearest_names import did_you_mean
from toolpost.contracts.outcomes import Completed, Failed, Outcome
from toolpost.runtime.model_messages import model_text
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.schema.secrets import drop_secrets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

T = TypeVar("T")
BudgetKind = Literal["steps", "time", "tokens", "cost"]
TOO_MANY_CALLS = "too_many_calls"
MISTAKES = frozenset({"tool_not_found", "validation_failed", TOO_MANY_CALLS})  # of the model, before anything ran
CANCELLED = '{"cancelled": true, "reason": "process restarted"}'
UNUSABLE = "Your last reply cannot be used: "
_ROLES = frozenset({"system", "user", "assistant", "tool"})
_KNOWN = "\n\nWhat is known:\n"
_CHARS_A_TOKEN = 4  # estimate for models that report no usage
_NEXT = {
    "tool_not_found": "Call one of the tools that you were given, or continue without it.",
    "validation_failed": "Correct the arguments and call it again.",
    TOO_MANY_CALLS: "Make fewer calls in one reply.",
    "approval_denied": "Do not call it again: continue without it, or say that it was denied.",
    "permission_denied": "It is not allowed: continue without it, or say so.",
    "auth_required": "Do not call it again: say that the account has to be connected.",
    "rate_limited": "Do something else first, or say that it is busy.",
    "source_down": "It cannot be reached now: continue without it, or say so.",
    "connection_failed": "It cannot be reached now: continue without it, or say so.",
    "circuit_open": "It cannot be reached now: continue without it, or say so.",
    "timeout": "Check whether it took effect before you call it again.",
    "cancelled": "Do not call it again unless you are told to.",
}
_ELSE = "Try it in another way, or say what went wrong."


async def run_loop(
    conversation: Conversation,
    *,
    prepare: Callable[[], Awaitable[T | None]],
    request: Callable[[], Awaitable[ModelReply]],
    answer: Callable[[ModelReply], Awaitable[T | None]],
    act: Callable[[list[PlannerCall]], Awaitable[T | None]],
) -> T:
    """Prompt a model and make the tool calls of its replies until a step returns a result.

    `prepare` runs before each prompt: it settles calls that wait and checks limits. `request` requests the next
    message. `answer` gets a reply without tool calls, and `act` the calls of any other reply.
    """
    while True:
        if (result := await prepare()) is not None:
            return result
        reply = await request()
        conversation.count(reply)
        calls = conversation.add_reply(reply.message)
        if (result := await (act(calls) if calls else answer(reply))) is not None:
            return result


class Budget(Struct, frozen=True, kw_only=True):
    """Limits of one run; None is unlimited.

    `steps` are replies of the model. `time_s` are seconds without waits for people. `tokens` are those of prompts and
    replies together. `cost` is in US dollars.
    """

    steps: int | None = None
    time_s: float | None = None
    tokens: int | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "time_s", "tokens", "cost"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:  # NaN too
                raise ConfigError(f"{name} of a Budget must be more than 0, not {limit!r}")

    def used_up(self, *, steps: int, seconds: float, usage: Usage) -> BudgetKind | None:
        """Return the limit that is reached, if any."""
        if self.steps is not None and steps >= self.steps:
            return "steps"
        if self.time_s is not None and seconds >= self.time_s:
            return "time"
        if self.tokens is not None and usage.total_tokens >= self.tokens:
            return "tokens"
        if self.cost is not None and (usage.cost or 0.0) >= self.cost:
            return "cost"
        return None


class PlanningHints(Struct, frozen=True, kw_only=True):
    """Hints for the prompt and limits on planning; `max_parallel` limits the calls of one reply."""

    max_parallel: int | None = None

    def __post_init__(self) -> None:
        check_at_least_one("max_parallel", self.max_parallel)

    @classmethod
    def parse(cls, limits: PlanningHints | Mapping[str, Any] | None) -> PlanningHints:
        """Parse hints from a mapping; raise ConfigError for an unknown key."""
        if isinstance(limits, PlanningHints):
            return limits
        names = [field.name for field in fields(cls)]
        for name in limits or {}:
            if name not in names:
                near = did_you_mean(name, names) or f"there are: {', '.join(names)}"
                raise ConfigError(f"planning_hints: unknown hint {name!r}; {near}")
        return cls(**(limits or {}))


def check_at_least_one(name: str, value: int | None) -> None:
    """Raise ConfigError for a limit below one."""
    if value is not None and value < 1:
        raise ConfigError(f"{name} must be at least 1, not {value}")


class PlannerCall(NamedTuple):
    """A tool call of the model, with its idempotency `key` and the pending action that it waits for."""

    id: str
    name: str
    arguments: Any
    key: str
    pending_id: str = ""


class Conversation(Struct, kw_only=True):
    """State of a run, with everything that another process needs to resume it.

    `mistakes` counts consecutive replies without a usable call or answer; `problem` describes the last one.
    `must_answer` means that the next reply must be the answer. `done` lists the ended calls.
    """

    user: str
    run_id: str
    key: str
    messages: list[dict[str, Any]]
    budget: Budget = field(default_factory=Budget)
    waiting: list[PlannerCall] = field(default_factory=list[PlannerCall])
    done: list[list[str]] = field(default_factory=list[list[str]])
    turns: int = 0
    calls: int = 0
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    mistakes: int = 0
    problem: str = ""
    must_answer: bool = False
    has_artifacts: bool = False

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        members: dict[str, Any] = {each.name: data[each.name] for each in fields(cls)}
        members["budget"] = Budget(**members["budget"])
        members["usage"] = Usage(*members["usage"])
        members["waiting"] = [PlannerCall(*call) for call in members["waiting"]]
        return cls(**members)

    def to_dict(self, *, since: int = 0) -> dict[str, Any]:
        """Return the conversation as JSON data, with the messages from index `since`."""
        facts = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**facts, "budget": asdict(self.budget), "messages": self.messages[since:], "since": since}

    @classmethod
    def restore(cls, data: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> Self:
        """Restore a conversation from its snapshot and the steps stored since."""
        messages: list[dict[str, Any]] = list(data["messages"])
        for step in steps:
            messages[step["since"] :] = step["messages"]
        last = steps[-1] if steps else data
        return cls.from_dict({**last, "messages": messages})

    def used_up(self, seconds: float) -> BudgetKind | None:
        return self.budget.used_up(steps=self.turns, seconds=seconds, usage=self.usage)

    def count(self, reply: ModelReply) -> None:
        """Count a reply and its usage; missing usage is estimated if tokens are limited."""
        used = reply.usage
        if self.budget.tokens is not None and not used.total_tokens:
            size = len(json.dumps(self.messages, ensure_ascii=False)) // _CHARS_A_TOKEN
            used = Usage(size, len(json.dumps(reply.message, ensure_ascii=False)) // _CHARS_A_TOKEN, used.cost)
        if self.budget.cost is not None and used.cost is None:
            name = f" {reply.model!r}" if reply.model else ""
            raise ConfigError(f"the cost of model{name} is not known and cannot be limited; limit the tokens")
        before = self.usage
        cost = before.cost if used.cost is None else (before.cost or 0.0) + used.cost
        self.usage = Usage(before.input_tokens + used.input_tokens, before.output_tokens + used.output_tokens, cost)
        self.turns += 1

    def add_reply(self, message: Mapping[str, Any]) -> list[PlannerCall]:
        self.messages.append({**message, "role": "assistant"})
        return self.read_calls(message)

    def read_calls(self, message: Mapping[str, Any]) -> list[PlannerCall]:
        """Return the tool calls of a message, with the next keys."""
        calls: list[dict[str, Any]] = message.get("tool_calls") or []
        return [self._tool_call(call) for call in calls]

    def _tool_call(self, call: dict[str, Any]) -> PlannerCall:
        self.calls += 1
        key = f"{self.key}_{self.calls}"  # some models reuse one ID for several calls
        function = as_object(call.get("function"))
        call["id"] = str(call.get("id") or key)
        return PlannerCall(call["id"], str(function.get("name")), function.get("arguments"), key)

    def add_outcome(self, call: PlannerCall, outcome: Completed | Failed) -> None:
        self.messages.append({"role": "tool", "tool_call_id": call.id, "content": result_text(outcome)})
        self.done.append([outcome.tool_name, outcome.status])
        self.has_artifacts = self.has_artifacts or (isinstance(outcome, Completed) and bool(outcome.artifacts))

    def judge(self, outcomes: Sequence[Outcome]) -> None:
        """Count a reply with nothing but mistaken calls, or reset the count."""
        failed = [each.error for each in outcomes if isinstance(each, Failed) and each.error.error_code in MISTAKES]
        self.mistakes = self.mistakes + 1 if len(failed) == len(outcomes) else 0
        self.problem = failed[-1].message if self.mistakes else ""

    def add_problem(self, problem: str) -> None:
        """Add a message that tells the model why its reply cannot be used."""
        self.mistakes += 1
        self.problem = problem
        self.messages.append({"role": "user", "content": f"{UNUSABLE}{problem}"})


def too_many_calls(count: int, most: int) -> str:
    """Return the reason why none of the calls of a reply is made; empty if they are not too many."""
    return (
        f"{count} concurrent calls are too many, and none of them was made; the maximum is {most}"
        if count > most
        else ""
    )


def result_text(outcome: Outcome) -> str:
    """Return the result of a call for the model, with advice if the call failed."""
    text = model_text(outcome)
    return f"{text}\n{advice(outcome.error.error_code)}" if isinstance(outcome, Failed) else text


def advice(error_code: str) -> str:
    """Return advice for the model after a failed call."""
    return _NEXT.get(error_code, _ELSE)


def tool_messages(call_ids: Iterable[str], text: str) -> list[dict[str, Any]]:
    """Return messages with the same result for several calls."""
    return [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id in call_ids]


def close_tool_calls(messages: Sequence[dict[str, Any]], text: str = CANCELLED) -> list[dict[str, Any]]:
    """Return a conversation in which every tool call has a result, as providers require; `text` where it had none.

    A result without its call is dropped.
    """
    closed: list[dict[str, Any]] = []
    open_ids: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if str(message.get("tool_call_id")) not in open_ids:
                continue  # its call was lost; a provider rejects a result without one
            open_ids.remove(str(message["tool_call_id"]))
        else:
            closed += tool_messages(open_ids, text)
            open_ids = [str(call.get("id")) for call in message.get("tool_calls") or () if is_object(call)]
        closed.append(message)
    return closed + tool_messages(open_ids, text)


def opening_messages(
    query: str, instructions: str, llm_context: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Build the first messages of a run, after those of `earlier` turns."""
    before = close_tool_calls(_copy_messages(earlier), "This call was not made.") if earlier else []
    head = before.pop(0)["content"] if before and before[0]["role"] == "system" else instructions
    if llm_context:
        context_json = json.dumps(drop_secrets(llm_context), ensure_ascii=False, default=str)
        head = f"{str(head).partition(_KNOWN)[0]}{_KNOWN}{context_json}"
    return [{"role": "system", "content": head}, *before, {"role": "user", "content": query}]


def _copy_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    try:
        copied: Any = json.loads(json.dumps(list(messages), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"messages are not JSON: {error}; give those of an earlier PlannerFinish") from error
    if not is_array(copied) or not all(is_object(each) and each.get("role") in _ROLES for each in copied):
        roles = ", ".join(sorted(_ROLES))
        raise ConfigError(f"messages is a list of objects with a role of {roles}, such as finish.messages")
    return copied
