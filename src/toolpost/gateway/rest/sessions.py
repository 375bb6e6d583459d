"""Operations on console sessions: open one, list and end them, and show the caller of a request."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from toolpost import __version__
from toolpost.console.files import console_build
from toolpost.contracts.callers import KEY_ID, OPERATOR_ID, SCOPES, SESSION_ID
from toolpost.gateway.access import is_local_client
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.schema_builders import ref
from toolpost.gateway.sessions import caller_of_session, ends_at
from toolpost.wire.addresses import is_loopback

if TYPE_CHECKING:
    from starlette.requests import Request

    from toolpost.contracts.callers import Caller, CallerSession
    from toolpost.gateway.sessions import OpenedSession

OPERATIONS = Operations("sessions")
FEATURES = (
    *("sessions", "tools", "keys", "policy", "about", "sources", "lock", "accounts"),
    *("pending.viewer", "pending.async", "pending.filters", "pending.escalate", "pending.preview"),
    *("runs.filters", "runs.details", "runs.events", "runs.verify", "events.pages", "events.type", "audit.csv"),
)
"""The parts of the interface that a console can rely on; a gateway of another version may lack some."""
_TICKET = {
    "type": "object",
    "properties": {"ticket": {"type": "string", "minLength": 1, "maxLength": 200}},
    "required": ["ticket"],
    "additionalProperties": False,
}


@OPERATIONS.declare("GET", "/me", answers={200: ref("Me")})
async def show_me(request: RestRequest) -> Response:
    """Show the caller of this request, its session and the gateway."""
    return JsonResponse(await _me(request, request.caller))


@OPERATIONS.declare("POST", "/sessions", answers={200: ref("OpenedSession")})
async def open_session(request: RestRequest) -> Response:
    """Open a console session with the bearer of a person."""
    opened = await request.service.sessions.open(request.caller, on_loopback=_is_on_loopback(request.raw))
    return await _opened(request, opened)


@OPERATIONS.declare(
    "POST", "/sessions/redeem", no_caller=True, takes=_TICKET, answers={200: ref("OpenedSession")}, problems=(401, 410)
)
async def redeem_ticket(request: RestRequest) -> Response:
    """Open a console session with a ticket."""
    opened = await request.service.sessions.redeem(
        request.body["ticket"], is_local=is_local_client(request.raw.scope), on_loopback=_is_on_loopback(request.raw)
    )
    return await _opened(request, opened)


@OPERATIONS.declare("POST", "/tickets", scope=("admin",), operator=True, answers={201: ref("Ticket")})
async def create_ticket(request: RestRequest) -> Response:
    """Create a ticket that opens one session of the operator."""
    ticket, text = await request.service.sessions.issue_ticket(request.caller)
    url = f"{request.service.public_url}/#t={text}"
    return JsonResponse({"ticket": text, "url": url, "expires_at": ticket.expires_at}, 201)


@OPERATIONS.declare("GET", "/sessions", answers={200: ref("Sessions")})
async def list_sessions(request: RestRequest) -> Response:
    """List the open console sessions of the user, or with the scope `admin` of the tenant."""
    _check_person(request.caller)
    sessions = await request.service.sessions.list(request.caller)
    return JsonResponse({"items": [_to_dict(session, request.caller) for session in sessions]})


@OPERATIONS.declare("DELETE", "/sessions/{session_id}", answers={204: None}, problems=(404,))
async def end_session(request: RestRequest) -> Response:
    """End a console session."""
    _check_person(request.caller)
    sessions, session_id = request.service.sessions, request.path["session_id"]
    found = next((one for one in await sessions.list(request.caller) if one.id == session_id), None)
    if found is None:
        detail = f"there is no session {session_id!r} for you; GET /api/v1/sessions lists them"
        raise Problem(404, "session_not_found", detail)
    is_own = request.caller.id == f"{SESSION_ID}{found.id}"
    await sessions.end(found, "signed out" if is_own else "ended by a person", by=request.user)
    return Response(status_code=204)


def _check_person(caller: Caller) -> None:
    if not caller.person:
        raise Problem(403, "not_a_person", "sessions belong to people; this bearer may be an agent's")


async def _opened(request: RestRequest, opened: OpenedSession) -> Response:
    caller = caller_of_session(opened.session)
    me = await _me(request, caller)
    return JsonResponse({"token": opened.token, "expires_at": ends_at(opened.session), "me": me})


def _to_dict(session: CallerSession, caller: Caller) -> dict[str, Any]:
    return {
        "id": session.id,
        "user": str(session.principal),
        "scopes": [scope for scope in SCOPES if scope in session.scopes],
        "opened_with": _credential(session.credential),
        "created_at": session.created_at,
        "last_used_at": session.used_at,
        "expires_at": ends_at(session),
        "current": caller.id == f"{SESSION_ID}{session.id}",
    }


def _credential(caller_id: str) -> dict[str, str]:
    """Return a credential as JSON data, by the id of its caller."""
    if caller_id == OPERATOR_ID:
        return {"kind": "operator", "id": caller_id}
    if caller_id.startswith(SESSION_ID):
        return {"kind": "session", "id": caller_id.removeprefix(SESSION_ID)}
    if caller_id.startswith(KEY_ID):
        return {"kind": "key", "id": caller_id.removeprefix(KEY_ID)}
    return {"kind": "token", "id": caller_id}


async def _me(request: RestRequest, caller: Caller) -> dict[str, Any]:
    credential = _credential(caller.credential or caller.id)
    name = credential["id"]
    if credential["kind"] == "key":
        key = await request.box.store.caller_keys.find(credential["id"])
        name = name if key is None else key.name
    server, oidc = request.service, request.box.settings.server.oidc
    session = {"id": caller.id.removeprefix(SESSION_ID), "expires_at": caller.expires_at} if caller.is_session else None
    return {
        "user": str(caller.principal),
        "tenant": caller.principal.tenant,
        "scopes": [scope for scope in SCOPES if scope in caller.scopes],
        "answers": list(caller.answers) if "answer" in caller.scopes else [],
        "operator": caller.is_operator,
        "caller": {**credential, "name": name},
        "session": session,
        "server": {
            "version": __version__,
            "build": console_build(),
            "public_url": server.public_url,
            "time": time.time(),
            "oidc": None if oidc is None else {"issuer": oidc.issuer, "sign_in": oidc.client_id is not None},
            "features": list(FEATURES),
        },
    }


def _is_on_loopback(raw: Request) -> bool:
    host = raw.url.hostname
    return host is not None and is_loopback(host)
