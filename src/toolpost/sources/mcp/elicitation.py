"""What servers ask back, as questions to a person; and a person's answers, as servers want them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from toolpost.contracts.errors import ToolClientError, ToolSchemaError
from toolpost.contracts.questions import Question
from toolpost.schema.bounds import check_schema
from toolpost.schema.jsontypes import is_object
from toolpost.schema.validator import compile_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.questions import Answer

ELICIT = "elicitation/create"
_KEY = "mcp:"
_PAGES_FIRST = -32042


class Demand(NamedTuple):
    """One answer of a server that needs more: what people must say, what we can say, and its opaque state."""

    people: dict[str, dict[str, Any]]
    machine: dict[str, dict[str, Any]]
    state: str | None


def demand_of(raw: Mapping[str, Any]) -> Demand:
    """Read an `input_required` result."""
    demand = Demand({}, {}, raw.get("requestState"))
    requests: Any = raw.get("inputRequests") or {}
    if not is_object(requests):
        raise ToolClientError("MCP tool error: the server needs input but does not say which")
    for key, request in requests.items():
        if not is_object(request):
            raise ToolClientError(f"MCP tool error: the server needs input, but its request {key!r} is not one")
        side = demand.people if request.get("method") == ELICIT else demand.machine
        side[key] = request
    return demand


def pages_of(cause: BaseException | None) -> dict[str, dict[str, Any]]:
    """The pages that a person must visit before a server does anything, from the error that says so (-32042)."""
    error: Any = getattr(cause, "error", None)
    data: Any = getattr(error, "data", None)
    if getattr(error, "code", None) != _PAGES_FIRST or not is_object(data):
        return {}
    asked = [one for one in data.get("elicitations") or () if is_object(one)]
    return {str(number): {"method": ELICIT, "params": {"mode": "url", **one}} for number, one in enumerate(asked)}


def question_of(
    source: str,
    people: Mapping[str, Mapping[str, Any]],
    state: Mapping[str, Any],
    *,
    number: int,
    deliver_denial: bool = True,
    held: bool = False,
) -> Question:
    """Ask a person what a server wants to know; `state` comes back with the answer. `held`: only while this lives."""
    forms = {key: cast("dict[str, Any]", request.get("params") or {}) for key, request in people.items()}
    for form in forms.values():
        _check_address(form, source)
    prompt = "\n".join(str(form.get("message", "")) for form in forms.values())
    shown = {key: {name: form[name] for name in _SHOWN if name in form} for key, form in forms.items()}
    return Question(
        kind="input",
        prompt=f"{source} asks: {prompt}",
        reason="input_required",
        payload={"source": source, "requests": shown} | ({"held": True} if held else {}),
        key=f"{_KEY}{number}",
        answer_schema=_usable(_schema(forms), source),
        state=dict(state),
        deliver_denial=deliver_denial,
    )


_SHOWN = ("mode", "message", "requestedSchema", "url", "elicitationId")


def _check_address(form: Mapping[str, Any], source: str) -> None:
    """A person is sent to web pages only; nothing that a browser would run."""
    if form.get("mode") == "url" and urlsplit(str(form.get("url", ""))).scheme not in ("http", "https"):
        raise ToolClientError(f"MCP tool error: {source!r} asks a person to open something that is not a web page")


def _usable(schema: dict[str, Any] | None, source: str) -> dict[str, Any] | None:
    """A form that can be filled in; a question that no answer fits must not be asked."""
    if schema is not None:
        try:
            check_schema(schema, tool_name=source)
            compile_validator(schema)
        except ToolSchemaError as error:
            msg = f"MCP tool error: {source!r} asks with a form that cannot be used: {error}"
            raise ToolClientError(msg) from error
    return schema


def _schema(forms: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """What an answer must look like: the one form's content, or one content for each by its key."""
    wanted = {key: _relaxed(form) for key, form in forms.items() if form.get("mode") != "url"}
    if not wanted:
        return None
    if len(forms) == 1:
        return next(iter(wanted.values()))
    return {"type": "object", "properties": wanted, "required": list(wanted)}


def _relaxed(form: Mapping[str, Any]) -> dict[str, Any]:
    """The form's schema, in which fields that have a default need no answer."""
    schema = cast("dict[str, Any]", form.get("requestedSchema") or {"type": "object"})
    defaults = _defaults(form)
    return {**schema, "required": [name for name in schema.get("required", []) if name not in defaults]}


def _defaults(form: Mapping[str, Any]) -> dict[str, Any]:
    schema = cast("dict[str, Any]", form.get("requestedSchema") or {})
    fields = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
    return {name: field["default"] for name, field in fields.items() if "default" in field}


def replies(people: Mapping[str, Mapping[str, Any]], answer: Answer) -> dict[str, dict[str, Any]]:
    """A person's answer as the server wants it: one reply for each of its requests."""
    forms = {key: cast("dict[str, Any]", request.get("params") or {}) for key, request in people.items()}
    return {key: _reply(form, answer, key if len(forms) > 1 else None) for key, form in forms.items()}


def _reply(form: Mapping[str, Any], answer: Answer, key: str | None) -> dict[str, Any]:
    if answer.decision == "deny":
        return {"action": "decline"}
    if form.get("mode") == "url":
        return {"action": "accept"}
    given: dict[str, Any] = answer.value or {}
    value: dict[str, Any] = given if key is None else given.get(key) or {}
    return {"action": "accept", "content": {**_defaults(form), **value}}


def next_number(answers: Mapping[str, Answer]) -> int:
    """The number of one more question in the same call; none is used twice."""
    return 1 + max((int(key.removeprefix(_KEY)) for key in answers if key.startswith(_KEY)), default=0)


def rounds(answers: Mapping[str, Answer]) -> list[Answer]:
    """The answers to a server's questions in one call, in the order they were asked."""
    numbers = sorted(int(key.removeprefix(_KEY)) for key in answers if key.startswith(_KEY))
    return [answers[f"{_KEY}{number}"] for number in numbers]
