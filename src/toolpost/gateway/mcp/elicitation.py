"""Prompts for the user of an MCP client: forms, sign-in pages, and the commands that answer a pending action."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import Result, server_request_adapter
from pydantic import ConfigDict, ValidationError

from toolpost.configuration.defaults import FILE_NAME
from toolpost.contracts.outcomes import OpenQuestion, Paused
from toolpost.contracts.principal import LOCAL_TENANT, Principal, login_name
from toolpost.contracts.questions import Question, answering_user
from toolpost.gateway.mcp.client import client_capabilities
from toolpost.schema.json_values import is_object
from toolpost.sources.mcp.sdk_seam import Parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.gateway.mcp.client import Context
    from toolpost.toolbox.box import Toolbox

    OptionsOf = Callable[[Question], str]  # of a command that answers a question

ELICIT = "elicitation/create"
_NEEDS = {"sampling/createMessage": "sampling", "roots/list": "roots"}
_EMPTY_FORM: dict[str, Any] = {"type": "object", "properties": {}}


def can_answer(requests: Mapping[str, Any], ctx: Context) -> bool:
    """Return whether the client of a request supports all these requests of an upstream server."""
    declared, modes = client_capabilities(ctx), _modes(ctx)
    for request in requests.values():
        method, params = request.get("method"), request.get("params")
        mode = params.get("mode", "form") if is_object(params) else "form"
        if method == ELICIT and mode not in modes:
            return False
        if method != ELICIT and _NEEDS.get(method) not in declared:
            return False
    return True


def elicitation(paused: Paused, ctx: Context, options: OptionsOf, *, is_asked: bool) -> dict[str, Any] | None:
    """Return the prompt for the client's user: a form for input, a sign-in page, or a notice about an approval.

    For an approval, only notify the user: approvers decide outside MCP, and the user confirms when the client should
    check again.
    """
    question, offered = paused.question, _modes(ctx)
    address = question.payload.get("auth_url")
    if question.kind == "consent" and isinstance(address, str) and "url" in offered:
        return {"mode": "url", "message": question.prompt, "url": address, "elicitationId": paused.pending_id}
    if "form" not in offered or question.kind == "restart":  # a suspended call resumes automatically
        return None
    if is_asked:
        return {"mode": "form", "message": question.prompt, "requestedSchema": _form(question)}
    return {"mode": "form", "message": where_to_answer(paused, options), "requestedSchema": _EMPTY_FORM}


def _form(question: Question) -> dict[str, Any]:
    """Return the form of a question; clients support only objects, so a plain answer is an object with one field."""
    if question.answer_schema is not None and has_form(question):
        return dict(question.answer_schema)
    return {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}


def has_form(question: Question) -> bool:
    """Return whether the answer to a question is an object, which clients show as a form."""
    schema = question.answer_schema
    return schema is not None and schema.get("type") == "object"


def _modes(ctx: Context) -> set[str]:
    capabilities = ctx.session.client_capabilities
    offered = None if capabilities is None else capabilities.elicitation
    if offered is None:
        return set()
    modes = {mode for mode in ("form", "url") if getattr(offered, mode, None) is not None}
    return modes or {"form"}  # an empty capability means forms: modes were added later


class _Reply(Result):
    """Any response of a client, as on the wire."""

    model_config = ConfigDict(extra="allow")


async def send_requests(ctx: Context, requests: Mapping[str, Any]) -> dict[str, Any]:
    """Send requests to a session-based client and return its responses; an error counts as a closed form."""
    replies = await asyncio.gather(*(_send(ctx, request) for request in requests.values()))
    return dict(zip(requests, replies, strict=True))


async def _send(ctx: Context, request: dict[str, Any]) -> dict[str, Any]:
    outbound = Parts.REQUEST_OUTBOUND.of(ctx.session)
    try:
        if outbound is None:
            return await _send_typed(ctx, request)
        reply: dict[str, Any] = await outbound.send_raw_request(request["method"], request.get("params") or {})
    except (MCPError, ValidationError):
        return {"action": "cancel"}
    return reply


async def _send_typed(ctx: Context, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request with the public method of the SDK, which validates it."""
    typed = server_request_adapter.validate_python(request)
    reply = await ctx.session.send_request(typed, _Reply, metadata=ServerMessageMetadata(ctx.request_id))
    return reply.model_dump(by_alias=True, mode="json", exclude_none=True)


def answer_options(box: Toolbox, user: str) -> OptionsOf:
    """Return the options of the `toolpost pending` command that reach a question of a call for `user`."""
    asked_by, default = Principal.parse(user), str(Principal(LOCAL_TENANT, login_name()))

    def options(question: Question) -> str:
        path = box.config_path
        words = [] if path is None or path.absolute() == Path(FILE_NAME).absolute() else ["--config", str(path)]
        person = answering_user(question, asked_by)
        words += [] if person == default else ["--user", person]
        return "".join(f" {shlex.quote(word)}" for word in words)

    return options


def where_to_answer(paused: Paused, options: OptionsOf) -> str:
    """Return the open questions of a call, each with the command that answers it."""
    return "\nIt also waits for: ".join(_how_to_answer(asked, options(asked.question)) for asked in paused.questions)


def _how_to_answer(asked: OpenQuestion, options: str) -> str:
    question = asked.question
    target = question.target.get("summary", "")
    shown = f"{question.prompt}\narguments: {dict(question.arguments)}" + (f"\ntarget: {target}" if target else "")
    service = question.payload.get("provider", "SERVICE")
    step = question.next_step.format(id=asked.pending_id, service=service, options=options)
    return f"{shown}\n{step}"
