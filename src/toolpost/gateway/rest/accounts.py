"""Operations on accounts: the caller's own sign-ins at services, started and finished by a front end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from toolpost.auth.consents import StartedSignIn
from toolpost.contracts.errors import ConfigError
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import JsonResponse, Operation, RestRequest
from toolpost.gateway.rest.schemas import ref

if TYPE_CHECKING:
    from toolpost.toolbox.accounts import AccountManager


async def _list_accounts(ask: RestRequest) -> Response:
    try:
        accounts: AccountManager = ask.box.accounts
    except ConfigError:  # no source is for accounts
        return JsonResponse([])
    states = await accounts.states(ask.caller.principal)
    return JsonResponse([{**state._asdict(), "scopes": list(state.scopes)} for state in states])


async def _start_sign_in(ask: RestRequest) -> Response:
    """Start a sign-in of the caller's; whoever finishes it must be the same caller."""
    provider, redirect_uri = ask.path["service"], str(ask.body.get("redirect_uri", ""))
    started = await _accounts(ask).connect(provider, ask.caller.principal, redirect_uri=redirect_uri)
    if isinstance(started, StartedSignIn):
        return JsonResponse({"status": "started", "provider": provider, "url": started.url})
    await _accounts(ask).on_connected(started)
    return JsonResponse({"status": "connected", "provider": provider, "url": None})


async def _finish_sign_in(ask: RestRequest) -> Response:
    """Finish a sign-in with the parameters that the browser came back with; calls that waited go on."""
    connected = await _accounts(ask).finish(
        ask.body["parameters"], provider=ask.path["service"], person=ask.caller.principal
    )
    return JsonResponse({"status": "connected", "provider": connected.provider, "url": None})


async def _disconnect(ask: RestRequest) -> Response:
    if await _accounts(ask).disconnect(ask.path["service"], ask.caller.principal) is None:
        raise Problem(404, "not_connected", f"there is no account at {ask.path['service']!r}")
    return Response(status_code=204)


def _accounts(ask: RestRequest) -> AccountManager:
    """Return the accounts, if one of them is at the service of the path."""
    try:
        accounts: AccountManager = ask.box.accounts
    except ConfigError as error:
        raise Problem(404, "service_not_found", error.message) from None
    if ask.path["service"] not in accounts.consents.services:
        raise Problem(404, "service_not_found", f"there is no service {ask.path['service']!r}")
    return accounts


OPERATIONS = [
    Operation(
        id="list_accounts",
        method="GET",
        path="/accounts",
        summary="List the services, and how the caller stands there",
        tag="accounts",
        handler=_list_accounts,
        answers={200: {"type": "array", "items": ref("Account")}},
    ),
    Operation(
        id="start_sign_in",
        method="POST",
        path="/accounts/{service}/sign-in",
        summary="Start to sign the caller in to a service",
        tag="accounts",
        handler=_start_sign_in,
        takes={
            "type": "object",
            "properties": {
                "redirect_uri": {
                    "type": "string",
                    "pattern": r"^https?://[^\s#]+$",
                    "maxLength": 2000,
                    "description": "The browser comes back to this address, followed by / and the name of the service",
                }
            },
            "additionalProperties": False,
        },
        answers={200: ref("SignIn")},
        problems=(404, 502, 503, 504),
    ),
    Operation(
        id="finish_sign_in",
        method="POST",
        path="/accounts/{service}/callback",
        summary="Finish the sign-in with what the browser came back with",
        tag="accounts",
        handler=_finish_sign_in,
        takes={
            "type": "object",
            "properties": {"parameters": {"type": "object", "additionalProperties": {"type": "string"}}},
            "required": ["parameters"],
            "additionalProperties": False,
        },
        answers={200: ref("SignIn")},
        problems=(404, 502, 503, 504),
    ),
    Operation(
        id="disconnect_account",
        method="DELETE",
        path="/accounts/{service}",
        summary="Let an account go, here and at the service",
        tag="accounts",
        handler=_disconnect,
        answers={204: None},
        problems=(404, 503),
    ),
]
