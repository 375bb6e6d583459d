"""Calls that are one HTTP request and its answer: http and graphql templates; a token that was refused is renewed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolOutputError
from toolpost.contracts.makers import maker
from toolpost.contracts.outcomes import NO_META
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.sources.utcp.auth_objects import present
from toolpost.sources.utcp.http_requests import bare_request, headers_of
from toolpost.web.contents import UnreadableError, content_of, decoded
from toolpost.web.encoding import compact_json
from toolpost.web.failures import failure_of, phrase_of, presentable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.sources.utcp.http_requests import RequestPlan
    from toolpost.sources.utcp.templates import GraphqlTemplate, WebTemplate
    from toolpost.sources.utcp.wires import Asked, Prepared, Wires
    from toolpost.web.planned import PlannedRequest
    from toolpost.web.presentation import Presentation
    from toolpost.web.sending import Reply

_new_output = maker(ToolOutput)
_NO_BODY = frozenset({204, 205})
_LONGEST_LOOK = 4096
_LONGEST_QUOTE = 120
_MOST_ERRORS = 3
CUT = "The stream went on; this is what came until then."
REMEDY = "Check the credential of the source and the variables of its manual."


async def call_http(prepared: Prepared, asked: Asked, wires: Wires) -> ToolOutput:
    """Call an http template."""
    reply, presented = await exchange(planned_of(prepared, asked), prepared, asked, wires)
    return output_of(prepared, reply, (*presented.secrets, *prepared.secrets, *wires.header_secrets))


async def call_graphql(prepared: Prepared, asked: Asked, wires: Wires) -> ToolOutput:
    """Call a graphql template: a POST of the query with the arguments as its variables."""
    template = cast("GraphqlTemplate", prepared.template)
    variables = dict(asked.arguments)
    headers = headers_of(template, variables)
    query = template.query or _query(template, prepared.full_name, variables)
    sent: dict[str, Any] = {"query": query, "variables": variables}
    if template.operation_name:
        sent["operationName"] = template.operation_name
    accepted = (*headers, ("Content-Type", "application/json"), ("Accept", "application/json"))
    planned = bare_request("POST", template.url, accepted, compact_json(sent).encode())
    reply, presented = await exchange(planned, prepared, asked, wires)
    secrets = (*presented.secrets, *prepared.secrets, *wires.header_secrets)
    return _graphql_output(prepared, output_of(prepared, reply, secrets).content, secrets)


def planned_of(prepared: Prepared, asked: Asked) -> PlannedRequest:
    """The request of one call."""
    return cast("RequestPlan", prepared.plan).request(asked.arguments)


async def exchange(
    planned: PlannedRequest, prepared: Prepared, asked: Asked, wires: Wires
) -> tuple[Reply, Presentation]:
    """Send a request with all that it takes to be let in; tells what was presented, too."""
    auth = cast("WebTemplate", prepared.template).auth
    planned = planned.with_headers(wires.headers)
    presented = await present(auth, asked.credential, wires.tokens)
    reply = await wires.send(planned.presenting(presented))
    if reply.status == 401 and presented.tokens:
        # A request that was not let in had no effect, so that it may go again, whatever its method.
        for token in presented.tokens:
            wires.tokens.forget(token)
        presented = await present(auth, asked.credential, wires.tokens)
        reply = await wires.send(planned.presenting(presented))
    return reply, presented


def output_of(prepared: Prepared, reply: Reply, secrets: Sequence[str]) -> ToolOutput:
    """The output that an answer stands for, or a ToolError raised."""
    status, headers = reply.status, reply.headers
    if not 200 <= status < 300:
        raise failure_of(prepared.shown, status, headers, reply.body, remedy=REMEDY, secrets=secrets)
    location = headers.get("location")
    if status in _NO_BODY or not reply.body:
        return ToolOutput(None, f"{status} {phrase_of(status)}: {location}" if location else None)
    try:
        content = content_of(reply.body, headers.get("content-type") or "", declared=_promised(prepared))
    except UnreadableError as error:
        begins = presentable(decoded(reply.body[:_LONGEST_LOOK]), secrets)[:_LONGEST_QUOTE]
        head = f"{prepared.shown} answered {status}, but the answer is unusable"
        raise ToolOutputError(f"{head}: {error}. It begins: {begins!r}") from error
    output = _new_output((content.value, None, content.media_type, NO_META))
    if content.note:
        output = output.noted(content.note)
    return output.noted(CUT) if reply.cut else output


def _promised(prepared: Prepared) -> tuple[str, ...]:
    """JSON, where the manual says that an object or a list comes."""
    said = (prepared.outputs or {}).get("type")
    return ("application/json",) if said in ("object", "array") else ()


def _query(template: GraphqlTemplate, full_name: str, variables: Mapping[str, Any]) -> str:
    """A query of one field without a selection, which is all that a manual without one can mean."""
    types = template.variable_types
    declared = ", ".join(f"${name}: {types.get(name, 'String')}" for name in variables)
    passed = ", ".join(f"{name}: ${name}" for name in variables)
    field = full_name.rpartition(".")[2]
    if not all(name.isidentifier() for name in (field, *variables)):
        raise ToolClientError(f"{full_name!r} or one of its arguments is no GraphQL name; its manual needs a `query`")
    if not variables:
        return f"{template.operation_type} {{ {field} }}"
    return f"{template.operation_type} ({declared}) {{ {field}({passed}) }}"


def _graphql_output(prepared: Prepared, answer: Any, secrets: Sequence[str]) -> ToolOutput:
    """What stands under `data`; errors are the failure, unless a query gave something beside them."""
    if not is_object(answer) or not ("data" in answer or "errors" in answer):
        raise ToolOutputError(f"{prepared.shown} answered with something that is no GraphQL answer")
    errors, data = answer.get("errors"), answer.get("data")
    if not errors and data is None:
        raise ToolOutputError(f"{prepared.shown} answered without errors, but without data, too")
    if not errors:
        return ToolOutput(data)
    found = errors if is_array(errors) else [errors]
    told = presentable("; ".join(map(_message, found[:_MOST_ERRORS])), secrets)
    got_nothing = not is_object(data) or all(value is None for value in data.values())
    if got_nothing or cast("GraphqlTemplate", prepared.template).is_mutation:
        effect = "" if got_nothing else ". It gave data too, so it may have had its effect"
        raise ToolClientError(f"{prepared.shown} answered with errors: {told}{effect}", code="graphql_errors")
    return ToolOutput(data).noted(f"The server told of errors beside this: {told}")


def _message(error: Any) -> str:
    told = error.get("message") if is_object(error) else error
    return (told if isinstance(told, str) else compact_json(told)) if told else "no reason given"
