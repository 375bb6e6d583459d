"""Read tool calls from a model provider's reply, and write the messages that answer them.

Chat Completions and Responses of OpenAI and Messages of Anthropic are read, as plain data or as the
client's own objects; no provider is called from here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.errors import ToolClientError, ToolError, ToolExecutionError, ToolOutputError, ToolServerError
from toolpost.contracts.ids import writable
from toolpost.contracts.outcomes import OUTPUT_ISSUES, Completed, Failed, Outcome, Paused
from toolpost.policy.untrusted import TRUSTED, UNTRUSTED, WARNING, tool_results
from toolpost.runtime.arguments import read_arguments
from toolpost.schema.hidden_text import clean_text
from toolpost.schema.json_values import as_object, is_array, is_object

if TYPE_CHECKING:
    from toolpost.schema.provider_schemas import CompiledTools

_READ = (
    "give the reply of Chat Completions or its message, the response of Responses or its output, or the message of "
    "Anthropic's Messages, as the client's own object or as a dict"
)
_RESUMES = "Do not repeat the call: it resumes after the answer."
_LONGEST_ERROR = 4000
_LONGEST_ISSUE = 200
_encode = json.JSONEncoder(ensure_ascii=False).encode  # `dumps` with an option makes an encoder for each value
_QUOTING = (ToolClientError, ToolServerError, ToolOutputError)  # they contain messages of the server


class ToolCallAnswers(NamedTuple):
    """Outcomes of the tool calls in a reply, in order, and the messages to append."""

    outcomes: list[Outcome]
    messages: list[dict[str, Any]]

    @property
    def paused(self) -> list[Paused]:
        """The outcomes of calls that wait for an answer."""
        return [outcome for outcome in self.outcomes if isinstance(outcome, Paused)]


class ToolCall(NamedTuple):
    """A tool call in a reply: the provider's id, the tool's name and the unchanged arguments."""

    id: str
    name: str
    arguments: Any


class ToolCalls(NamedTuple):
    """The tool calls of one reply, and the function that writes the provider's messages for them."""

    calls: list[ToolCall]
    write: Callable[[Sequence[ToolCall], Sequence[Outcome]], list[dict[str, Any]]]

    def answered(self, outcomes: list[Outcome]) -> ToolCallAnswers:
        """Return the outcomes of all calls with their messages."""
        return ToolCallAnswers(outcomes, self.write(self.calls, outcomes) if outcomes else [])


def read_tool_calls(reply: object, compiled: CompiledTools | None = None) -> ToolCalls:
    """Return the tool calls of a provider's reply; TypeError for an unknown format.

    Arguments for tools that were compiled for the provider are converted back.
    """
    read = _read_tool_calls(reply)
    if compiled is None:
        return read
    return read._replace(calls=[call._replace(arguments=_real_arguments(call, compiled)) for call in read.calls])


def _real_arguments(call: ToolCall, compiled: CompiledTools) -> Any:
    schema = compiled.schemas.get(call.name)
    if schema is None or schema.is_plain:
        return call.arguments
    values = read_arguments(call.arguments) if isinstance(call.arguments, str) else call.arguments
    return schema.from_model(values) if is_object(values) else call.arguments


def _read_tool_calls(reply: object) -> ToolCalls:
    data = _plain(reply)
    if is_array(data):
        return _of_parts(data)
    if not is_object(data):
        raise TypeError(f"there are no tool calls to be read in a {type(reply).__name__}; {_READ}")
    if is_array(data.get("choices")):
        data = _message(data["choices"])
    if is_array(data.get("output")):
        return _of_parts(data["output"])
    if is_array(data.get("tool_calls")):
        return ToolCalls([_chat_call(call) for call in _objects(data["tool_calls"])], _chat_messages)
    if is_array(data.get("content")):
        return _of_parts(data["content"])
    if data and not {"content", "role"} & data.keys():
        raise TypeError(f"there are no tool calls to be read in an object with {', '.join(data)}; {_READ}")
    return ToolCalls([], _chat_messages)


def _message(choices: Sequence[Any]) -> dict[str, Any]:
    """Return the message of the first choice; most replies have one."""
    objects = _objects(choices)
    message = _plain(objects[0].get("message")) if objects else None
    return as_object(message)


def _of_parts(parts: Sequence[Any]) -> ToolCalls:
    """Return the tool calls among the items of a response or the blocks of an Anthropic message."""
    items = _objects(parts)
    uses = [_call(item, "id", "input") for item in items if item.get("type") == "tool_use"]
    if uses:
        return ToolCalls(uses, _anthropic_messages)
    calls = [_call(item, "call_id", "arguments") for item in items if item.get("type") == "function_call"]
    return ToolCalls(calls, _responses_items)


def _chat_call(call: dict[str, Any]) -> ToolCall:
    function = _plain(call.get("function"))
    return _call({**as_object(function), "id": call.get("id")}, "id", "arguments")


def _call(data: dict[str, Any], id_key: str, arguments_key: str) -> ToolCall:
    return ToolCall(str(data.get(id_key) or ""), str(data.get("name") or ""), data.get(arguments_key))


def _chat_messages(calls: Sequence[ToolCall], outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    return [
        {"role": "tool", "tool_call_id": call.id, "content": model_text(outcome)}
        for call, outcome in zip(calls, outcomes, strict=True)
    ]


def _responses_items(calls: Sequence[ToolCall], outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    return [
        {"type": "function_call_output", "call_id": call.id, "output": model_text(outcome)}
        for call, outcome in zip(calls, outcomes, strict=True)
    ]


def _anthropic_messages(calls: Sequence[ToolCall], outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Write all results into one message, which must follow the reply."""
    return [
        {
            "role": "user",
            "content": [_tool_result(call, outcome) for call, outcome in zip(calls, outcomes, strict=True)],
        }
    ]


def _tool_result(call: ToolCall, outcome: Outcome) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call.id, "content": model_text(outcome)}
    return {**block, "is_error": True} if isinstance(outcome, Failed) else block


def _objects(values: Sequence[Any]) -> list[dict[str, Any]]:
    return [data for data in map(_plain, values) if is_object(data)]


def _plain(value: Any) -> Any:
    """Return an object of a provider's client as plain data, by `model_dump`."""
    dump = getattr(value, "model_dump", None)
    return dump(exclude_none=True) if callable(dump) else value


def model_text(outcome: Outcome) -> str:
    """Return the text of an outcome for a model's messages.

    The result of a configured source is inside delimiters, after a warning not to follow its instructions, unless the
    operator trusts the source.
    """
    if isinstance(outcome, Completed):
        return writable(_result_text(outcome))
    if isinstance(outcome, Failed):
        return _error_text(outcome.tool_name, outcome.error)
    asked = [f"({one.question.kind}): {clean_text(one.question.prompt).text}" for one in outcome.questions]
    return "This call waits for a person " + "\nand for a person ".join(asked) + f"\n{_RESUMES}"


def _result_text(outcome: Completed) -> str:
    text, content = outcome.text, outcome.content
    if text is None:
        text = content if isinstance(content, str) else _encode(content)
    if OUTPUT_ISSUES in outcome.meta:
        text = f"{text}\n{_violation_note(outcome.meta[OUTPUT_ISSUES])}"
    trust = outcome.meta.get("trust")
    if trust != UNTRUSTED or text.startswith(WARNING):  # a tool has delimited it already
        return clean_text(text).text if trust == TRUSTED else text
    return tool_results(text, str(outcome.meta.get("origin") or outcome.tool_name))


def _violation_note(issues: Sequence[str]) -> str:
    """Return one line about a result that violates its schema; it quotes the server, so it is inside the delimiters."""
    first = " ".join(str(issue) for issue in issues[:1])
    more = f", and {len(issues) - 1} more" if len(issues) > 1 else ""
    return f"[This result violates the output schema of the tool: {first[:_LONGEST_ISSUE]}{more}]"


def _error_text(tool_name: str, error: ToolError) -> str:
    head = f"The call failed ({error.error_code})"
    message = error.message if len(error.message) <= _LONGEST_ERROR else f"{error.message[:_LONGEST_ERROR]}…"
    quotes = isinstance(error, _QUOTING) or (error.origin and isinstance(error, ToolExecutionError))
    if quotes and not error.is_trusted:
        return f"{head}.\n{tool_results(message, tool_name)}"
    return f"{head}: {clean_text(message).text}"
