"""Elicitation: convert the input requests of an MCP server to questions, and answers to responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from toolpost.contracts.errors import ToolClientError, ToolSchemaError
from toolpost.contracts.questions import Answer, Question
from toolpost.schema.json_values import is_object
from toolpost.schema.schema_checks import check_schema
from toolpost.schema.validator import compile_validator

ELICIT = "elicitation/create"
_KEY = "mcp:"
_URL_ELICITATION_REQUIRED = -32042
_SHOWN_FIELDS = ("mode", "message", "requestedSchema", "url", "elicitationId")
HELD = "request"  # the key of the request for which the server holds a call
CANCELLED: dict[str, Any] = {"action": "cancel"}


class InputRequired(NamedTuple):
    """An `input_required` result: requests for a person, requests for this client, and the server's opaque state."""

    elicitations: dict[str, dict[str, Any]]
    client_requests: dict[str, dict[str, Any]]
    state: str | None


def parse_input_required(raw: Mapping[str, Any]) -> InputRequired:
    """Parse an `input_required` result."""
    needed = InputRequired({}, {}, raw.get("requestState"))
    requests: Any = raw.get("inputRequests") or {}
    if not is_object(requests):
        raise ToolClientError("MCP tool error: the server needs input, but its result has no requests")
    for key, request in requests.items():
        if not is_object(request):
            raise ToolClientError(f"MCP tool error: the server needs input, but its request {key!r} is not one")
        side = needed.elicitations if request.get("method") == ELICIT else needed.client_requests
        side[key] = request
    return needed


def parse_url_elicitations(cause: BaseException | None) -> dict[str, dict[str, Any]]:
    """Return the pages that a user must visit first, from error -32042; none for other errors."""
    error: Any = getattr(cause, "error", None)
    data: Any = getattr(error, "data", None)
    if getattr(error, "code", None) != _URL_ELICITATION_REQUIRED or not is_object(data):
        return {}
    pages = [page for page in data.get("elicitations") or () if is_object(page)]
    return {str(number): {"method": ELICIT, "params": {"mode": "url", **page}} for number, page in enumerate(pages)}


def build_question(
    source: str,
    elicitations: Mapping[str, Mapping[str, Any]],
    state: Mapping[str, Any],
    *,
    number: int,
    deliver_denial: bool = True,
    held: bool = False,
    requests: Mapping[str, Mapping[str, Any]] | None = None,
) -> Question:
    """Build the question for a server's elicitations.

    `state` comes back with the answer. `held` marks a question that only the process holding the call can answer.
    `requests` are all that the client of the call may answer: the elicitations, and what is for its model or its
    folders.
    """
    forms = _forms(elicitations)
    for form in forms.values():
        # Any other scheme could be a script that the browser runs.
        if form.get("mode") == "url" and urlsplit(str(form.get("url", ""))).scheme not in ("http", "https"):
            raise ToolClientError(
                f"MCP tool error: {source!r} requests a user to open an address that is not a web page"
            )
    asked = {str(request.get("method")) for key, request in (requests or {}).items() if key not in elicitations}
    messages = [str(form.get("message", "")) for form in forms.values()]
    prompt = "\n".join([*messages, *(f"its client for {method}" for method in sorted(asked))])
    shown = {key: {name: form[name] for name in _SHOWN_FIELDS if name in form} for key, form in forms.items()}
    return Question(
        kind="input",
        prompt=f"{source} asks: {prompt}",
        reason="input_required",
        payload={"source": source, "requests": shown} | ({"held": True} if held else {}),
        key=f"{_KEY}{number}",
        answer_schema=_check_form(_answer_schema(forms), source),
        state=dict(state),
        deliver_denial=deliver_denial,
        requests=dict(elicitations if requests is None else requests),
    )


def _forms(elicitations: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {key: cast("dict[str, Any]", request.get("params") or {}) for key, request in elicitations.items()}


def _check_form(schema: dict[str, Any] | None, source: str) -> dict[str, Any] | None:
    """Reject a form whose schema cannot be used, because no answer could match it."""
    if schema is not None:
        try:
            check_schema(schema, tool_name=source)
            compile_validator(schema)
        except ToolSchemaError as error:
            msg = f"MCP tool error: {source!r} sent a form that cannot be used: {error}"
            raise ToolClientError(msg) from error
    return schema


def _answer_schema(forms: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Build the schema of the answer: the only form's content, or the content of each form by its key."""
    schemas: dict[str, dict[str, Any]] = {}
    for key, form in forms.items():
        if form.get("mode") != "url":
            schema = cast("dict[str, Any]", form.get("requestedSchema") or {"type": "object"})
            defaults = _defaults(form)  # fields with a default are optional
            required = [name for name in schema.get("required", []) if name not in defaults]
            schemas[key] = {**schema, "required": required}
    if not schemas:
        return None
    if len(forms) == 1:
        return next(iter(schemas.values()))
    return {"type": "object", "properties": schemas, "required": list(schemas)}


def _defaults(form: Mapping[str, Any]) -> dict[str, Any]:
    schema = cast("dict[str, Any]", form.get("requestedSchema") or {})
    fields = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
    return {name: field["default"] for name, field in fields.items() if "default" in field}


def build_responses(elicitations: Mapping[str, Mapping[str, Any]], answer: Answer) -> dict[str, dict[str, Any]]:
    """Convert an answer to the response for each of the server's requests; a client's own responses are passed on."""
    if answer.responses is not None:
        return {key: answer.responses[key] for key in elicitations if key in answer.responses}
    forms = _forms(elicitations)
    return {key: _build_response(form, answer, key if len(forms) > 1 else None) for key, form in forms.items()}


def _build_response(form: Mapping[str, Any], answer: Answer, key: str | None) -> dict[str, Any]:
    if answer.decision == "deny":
        return {"action": "decline"}
    if form.get("mode") == "url":
        return {"action": "accept"}
    given: dict[str, Any] = answer.value or {}
    value: dict[str, Any] = given if key is None else given.get(key) or {}
    return {"action": "accept", "content": {**_defaults(form), **value}}


def next_question_number(answers: Mapping[str, Answer]) -> int:
    """Return an unused number for the next question of a call."""
    return 1 + max(_question_numbers(answers), default=0)


def elicitation_answers(answers: Mapping[str, Answer]) -> list[Answer]:
    """Return the answers to a server's questions in one call, in order."""
    return [answers[f"{_KEY}{number}"] for number in sorted(_question_numbers(answers))]


def _question_numbers(answers: Mapping[str, Answer]) -> list[int]:
    return [int(key.removeprefix(_KEY)) for key in answers if key.startswith(_KEY)]
