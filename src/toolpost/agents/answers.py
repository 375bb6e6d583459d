"""JSON written by a model: structured answers, and the actions of a model without function calling.

An action is one JSON object: `{"tool": name, "args": {...}}` calls a tool, `{"answer": ...}` answers. Several calls are
`{"calls": [...]}`. The other common spelling is accepted too: `{"next_node": name, "args": {...}}` with
`final_response` and `parallel`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from toolpost.agents.conversation import UNUSABLE
from toolpost.contracts.errors import ConfigError, ToolSchemaError, ToolValidationError
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.schema.pydantic_types import schema_of
from toolpost.schema.validator import compile_validator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolpost.contracts.spec import JsonSchema, ToolDefinition

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_MOST_ISSUES = 5
_RULES = """
Write exactly one JSON object and nothing else. To call a tool:
{"tool": "<its name>", "args": {<its arguments>}}
You then get its result. When you can answer the request:
{"answer": <your answer>}"""
_NEED = 'write {"tool": name, "args": {...}} or {"answer": ...} and nothing else'
_FINAL = frozenset({"final_response", "final_answer", "answer"})


class AnswerSchema:
    """Schema of an answer, from a JSON Schema or from a type such as a pydantic model."""

    def __init__(self, answer_type: Mapping[str, Any] | type) -> None:
        self._adapter: TypeAdapter[Any] | None = None
        if is_object(answer_type):
            self.schema: JsonSchema = answer_type
        else:
            self._adapter = _adapter(answer_type)
            self.schema = schema_of(self._adapter, "validation")
        try:
            self._validator = compile_validator(self.schema, own=True)
        except ToolSchemaError as error:
            raise ConfigError(f"answer_schema cannot be used: {error}") from error

    def read(self, text: str) -> Any:
        """Parse the answer in a text to the given type; raise ToolValidationError if it is invalid."""
        value = text if self._validator.is_valid(text) else read_json(text)
        self._validator.check(value)
        if self._adapter is None:
            return value
        try:
            return self._adapter.validate_json(json.dumps(value))
        except ValidationError as error:
            raise ToolValidationError([_issue(each) for each in error.errors()[:_MOST_ISSUES]]) from error


def _adapter(answer_type: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(answer_type)
    except Exception as error:
        hint = "give a JSON Schema as a dict, or a type such as a pydantic model"
        raise ConfigError(f"answer_schema {answer_type!r} cannot be used: {error}; {hint}") from error


def _issue(detail: Any) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
    return f"${place}: {detail['msg']}"


def read_json(text: str) -> Any:
    """Parse the JSON value in a model's text: all of it, a fenced block, or the first object or array."""
    stripped = text.strip()
    fenced = _FENCED.search(stripped)
    for candidate in (stripped, fenced[1].strip() if fenced else ""):
        try:
            return json.loads(candidate, parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
    start = min((at for at in (stripped.find("{"), stripped.find("[")) if at >= 0), default=-1)
    if start < 0:
        raise ToolValidationError("$: it contains no JSON")
    try:
        return json.JSONDecoder(parse_constant=_refuse).raw_decode(stripped, start)[0]
    except (ValueError, RecursionError) as error:
        raise ToolValidationError(f"$: it is not JSON: {error}") from error


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def action_schema(tools: Sequence[ToolDefinition], answer: JsonSchema | None) -> JsonSchema:
    """Return the JSON Schema of an action for these tools and this schema of the answer."""
    calls = [_member("tool", {"const": tool.name}, args=_inner(tool.parameters)) for tool in tools]
    return {"anyOf": [*calls, _member("answer", {"type": "string"} if answer is None else _inner(answer))]}


def _member(name: str, schema: JsonSchema, **others: JsonSchema) -> JsonSchema:
    properties = {name: schema, **others}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _inner(schema: JsonSchema) -> JsonSchema:
    """Return a schema for use inside another; references would point elsewhere there."""
    if '"$ref"' in json.dumps(schema) or "$defs" in schema:
        return {"type": schema["type"]} if isinstance(schema.get("type"), str) else {}
    return {name: part for name, part in schema.items() if name not in {"$schema", "$id"}}


def action_rules(tools: Sequence[ToolDefinition], answer: JsonSchema | None) -> str:
    """Return the rules of actions for the system message, with the tools and the schema of the answer."""
    listed = "\n".join(
        f"- {tool.name}: {tool.description}\n  args: {json.dumps(tool.parameters, ensure_ascii=False)}"
        for tool in tools
    )
    answer_rule = (
        "" if answer is None else f"\nThe answer must fit this JSON Schema: {json.dumps(answer, ensure_ascii=False)}"
    )
    return f"{_RULES}{answer_rule}\n\nTools:\n{listed or 'none'}"


def as_actions(messages: Sequence[Mapping[str, Any]], rules: str) -> list[dict[str, Any]]:
    """Rewrite a conversation for a model without tools: calls become JSON objects, results become messages."""
    shown: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message, following in zip(messages, [*messages[1:], {}], strict=True):
        role, content = message["role"], message.get("content")
        if role == "tool":
            name = names.get(str(message.get("tool_call_id")), "the call")
            _say(shown, "user", f"Result of {name}:\n{content}")
        elif role == "assistant" and message.get("tool_calls"):
            calls = list(_written_calls(message["tool_calls"], names))
            action = calls[0] if len(calls) == 1 else {"calls": calls}
            _say(shown, "assistant", json.dumps(action, ensure_ascii=False))
        elif role == "assistant" and content and not str(following.get("content")).startswith(UNUSABLE):
            _say(shown, role, json.dumps({"answer": content}, ensure_ascii=False))
        else:
            _say(shown, role, f"{content}\n{rules}" if not shown else str(content))
    return shown


def _say(shown: list[dict[str, Any]], role: str, text: str) -> None:
    """Add a message, or append it to one of the same role: some models reject two in a row."""
    if shown and shown[-1]["role"] == role:
        shown[-1]["content"] += f"\n\n{text}"
    else:
        shown.append({"role": role, "content": text})


def _written_calls(calls: Sequence[Mapping[str, Any]], names: dict[str, str]) -> Iterator[dict[str, Any]]:
    for call in calls:
        function: Any = call.get("function")
        name = str(function.get("name")) if is_object(function) else "None"
        arguments: Any = function.get("arguments") if is_object(function) else None
        names[str(call.get("id"))] = name
        try:
            yield {"tool": name, "args": json.loads(arguments) if isinstance(arguments, str) else arguments}
        except ValueError:
            yield {"tool": name, "args": arguments}


def read_action(text: str) -> dict[str, Any]:
    """Parse an action to a message with native tool calls or an answer; raise ToolValidationError otherwise."""
    action = read_json(text)
    if not is_object(action):
        raise ToolValidationError(f"$: it is not an object; {_NEED}")
    calls = _calls(action)
    if calls is not None:
        return {"role": "assistant", "content": None, "tool_calls": [_native(call) for call in calls]}
    answer = _answer(action)
    return {"role": "assistant", "content": answer if isinstance(answer, str) else json.dumps(answer)}


def _calls(action: dict[str, Any]) -> list[Any] | None:
    """Return the calls of an action, or None if it is an answer."""
    if "calls" in action:
        return _steps(action["calls"])
    if _name(action) == "parallel" and is_object(_arguments(action)):
        if _arguments(action).get("join"):
            raise ToolValidationError("$.args.join: results are not joined; call the next tool when you have them")
        return _steps(_arguments(action).get("steps"))
    name = _name(action)
    return None if name is None or name in _FINAL else [action]


def _steps(steps: Any) -> list[Any]:
    if not is_array(steps) or not steps or not all(is_object(step) for step in steps):
        raise ToolValidationError(f"$: calls is a list of objects; {_NEED}")
    return steps


def _name(action: dict[str, Any]) -> Any:
    return next((action[key] for key in ("tool", "next_node", "node") if action.get(key) is not None), None)


def _arguments(action: dict[str, Any]) -> Any:
    return action["args"] if "args" in action else action.get("arguments", dict[str, Any]())


def _answer(action: dict[str, Any]) -> Any:
    inner: Any = _arguments(action)
    for members in (action, as_object(inner)):
        for key in ("answer", "raw_answer"):
            if members.get(key) is not None:
                return members[key]
    raise ToolValidationError(f"$: it has neither a tool nor an answer; {_NEED}")


def _native(call: dict[str, Any]) -> dict[str, Any]:
    arguments = _arguments(call)
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"type": "function", "function": {"name": str(_name(call)), "arguments": text}}
