"""Operations on accounts: list them, start and finish sign-ins of the caller, and disconnect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from toolpost.auth.consents import StartedSignIn
from toolpost.contracts.errors import ConfigError
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.schema_builders import ref
from toolpost.gateway.rest.source_documents import service_of

if TYPE_CHECKING:
    from toolpost.toolbox.accounts import AccountManager

OPERATIONS = Operations("accounts")
_MOST_WAITING = 500  # of the newest pending actions
_REDIRECT = {
    "type": "string",
    "pattern": r"^https?://[^\s#]+$",
    "maxLength": 2000,
    "description": "The browser is redirected to this address, followed by / and the name of the service",
}
_PARAMETERS = {"type": "object", "additionalProperties": {"type": "string"}}


@OPERATIONS.declare("GET", "/accounts", answers={200: {"type": "array", "items": ref("Account")}})
async def list_accounts(request: RestRequest) -> Response:
    """List the services and the state of the caller's account at each."""
    try:
        accounts: AccountManager = request.box.accounts
    except ConfigError:  # no source uses accounts
        return JsonResponse([])
    states = await accounts.states(request.caller.principal)
    waiting = await _waiting(request)
    return JsonResponse(
        [
            {
                **state._asdict(),
                "scopes": list(state.scopes),
                "requested_scopes": accounts.requested_scopes(state.provider),
                **_use(request, state.provider),
                "waiting": waiting.get(state.provider, []),
            }
            for state in states
        ]
    )


@OPERATIONS.declare(
    "GET", "/accounts/users", scope=("admin",), answers={200: {"type": "array", "items": ref("UserAccount")}}
)
async def list_user_accounts(request: RestRequest) -> Response:
    """List the accounts of all users of the tenant, without tokens."""
    try:
        users = await request.box.accounts.users(request.tenant)
    except ConfigError:  # no source uses accounts
        return JsonResponse([])
    return JsonResponse(
        [
            {"user": f"{request.tenant}:{user}", **state._asdict(), "scopes": list(state.scopes)}
            for user, states in users.items()
            for state in states
        ]
    )


def _use(request: RestRequest, provider: str) -> dict[str, Any]:
    """Return the sources that use accounts of a service, and the number of their tools."""
    index = request.box.sources.index.by_name
    names = [name for name, managed in index.items() if service_of(managed.given) == provider]
    return {"sources": names, "tools": sum(index[name].tools.listing.offered for name in names)}


async def _waiting(request: RestRequest) -> dict[str, list[str]]:
    """Return the IDs of the caller's pending actions that wait for a sign-in, by service."""
    open_actions = await request.box.pending.list(
        by=request.user, user=request.caller.principal.user, limit=_MOST_WAITING
    )
    found: dict[str, list[str]] = {}
    for action in open_actions:
        if action.question.kind == "consent":
            found.setdefault(str(action.question.payload.get("provider", "")), []).append(action.id)
    return found


@OPERATIONS.declare(
    "POST",
    "/accounts/{service}/sign-in",
    takes={"type": "object", "properties": {"redirect_uri": _REDIRECT}, "additionalProperties": False},
    answers={200: ref("SignIn")},
    problems=(404, 502, 503, 504),
)
async def start_sign_in(request: RestRequest) -> Response:
    """Start a sign-in of the caller at a service; the same caller must finish it."""
    provider, redirect_uri = request.path["service"], str(request.body.get("redirect_uri", ""))
    started = await _accounts(request).connect(provider, request.caller.principal, redirect_uri=redirect_uri)
    if isinstance(started, StartedSignIn):
        return JsonResponse({"status": "started", "provider": provider, "url": started.url})
    await _accounts(request).on_connected(started)
    return JsonResponse({"status": "connected", "provider": provider, "url": None})


@OPERATIONS.declare(
    "POST",
    "/accounts/{service}/callback",
    takes={
        "type": "object",
        "properties": {"parameters": _PARAMETERS},
        "required": ["parameters"],
        "additionalProperties": False,
    },
    answers={200: ref("SignIn")},
    problems=(404, 502, 503, 504),
)
async def finish_sign_in(request: RestRequest) -> Response:
    """Finish a sign-in with the parameters of the browser's redirect, and resume the calls that wait for it."""
    connected = await _accounts(request).finish(
        request.body["parameters"], provider=request.path["service"], person=request.caller.principal
    )
    return JsonResponse({"status": "connected", "provider": connected.provider, "url": None})


@OPERATIONS.declare("DELETE", "/accounts/{service}", answers={204: None}, problems=(404, 503))
async def disconnect_account(request: RestRequest) -> Response:
    """Disconnect an account: delete its tokens and revoke them at the service."""
    if await _accounts(request).disconnect(request.path["service"], request.caller.principal) is None:
        raise Problem(404, "not_connected", f"no account at {request.path['service']!r}")
    return Response(status_code=204)


def _accounts(request: RestRequest) -> AccountManager:
    """Return the account manager; raise Problem if it does not know the service of the path."""
    try:
        accounts: AccountManager = request.box.accounts
    except ConfigError as error:
        raise Problem(404, "service_not_found", error.message) from None
    if request.path["service"] not in accounts.consents.services:
        raise Problem(404, "service_not_found", f"unknown service {request.path['service']!r}")
    return accounts
