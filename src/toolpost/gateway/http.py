"""The gateway's ASGI application: MCP at `/mcp` and REST under `/api/v1`, behind access control."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

from toolpost.auth.caller_tokens import CallerTokens
from toolpost.console.app import ConsoleApp
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.principal import Principal
from toolpost.gateway.a2a import a2a_routes
from toolpost.gateway.access import METADATA, SIGN_IN_START, Access, CallerLimits, Callers
from toolpost.gateway.caller_keys import local_token
from toolpost.gateway.issuer_sign_in import IssuerSignIn
from toolpost.gateway.observation import observed
from toolpost.gateway.problems import ProblemResponse, problem_of
from toolpost.gateway.rest.openapi import rest_routes
from toolpost.gateway.rest.operations import RestService
from toolpost.gateway.service_routes import service_routes
from toolpost.gateway.sessions import Sessions
from toolpost.toolbox.callback_app import callback_app
from toolpost.toolbox.local_tools import network_policy
from toolpost.wire.addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp

    from toolpost.gateway.event_feed import EventFeed
    from toolpost.gateway.siblings import Siblings
    from toolpost.gateway.source_changes import ChangedSources
    from toolpost.gateway.view_servers import ViewServers
    from toolpost.toolbox.box import Toolbox


def gateway_app(
    box: Toolbox,
    mcp: ViewServers,
    callers: Callers,
    feed: EventFeed,
    *,
    public_url: str,
    siblings: Siblings | None = None,
    changed_sources: ChangedSources | None = None,
) -> ASGIApp:
    """Return the ASGI application of the gateway, whose clients use `public_url`.

    `mcp` is served at `/mcp` and below it. `siblings` are the other workers; `changed_sources` are the changes of
    sources that they applied before this one started.
    """
    limits = CallerLimits(
        box.store.limits,
        box.router.background,
        requests_per_minute=box.settings.server.requests_per_minute,
        concurrent_requests=box.settings.server.concurrent_requests,
    )
    rest = RestService(
        box,
        feed,
        mcp,
        callers.sessions,
        limits=limits,
        public_url=public_url,
        siblings=siblings,
        changed_sources=changed_sources,
        key_uses=callers.uses,
    )
    sign_in = _issuer_sign_in(box, callers, public_url)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        async with mcp.running(), rest.running(), nullcontext() if sign_in is None else sign_in.running():
            yield

    host = urlsplit(public_url).hostname
    is_local = host is not None and is_loopback(host)
    routes: list[BaseRoute] = [
        Route("/mcp/{view}", endpoint=mcp),
        *service_routes(rest),
        *rest_routes(rest),
        *a2a_routes(rest),
        *((Route(SIGN_IN_START, _no_issuer),) if sign_in is None else sign_in.routes()),
    ]
    if is_local:  # elsewhere the user of the browser is unknown without a login
        routes.append(Mount("/oauth", app=callback_app(box, identify=lambda _scope: str(callers.operator.principal))))
    app = Starlette(
        routes=routes, lifespan=lifespan, exception_handlers={404: _not_found, 500: _broken, ToolError: _refused}
    )

    metadata_url = None if box.settings.server.oidc is None else f"{public_url}{METADATA}/mcp"
    access = Access(
        app,
        callers,
        public_url=public_url,
        limits=limits,
        mcp=mcp.serve_default,
        console=ConsoleApp(oauth_callback=not is_local),
        metadata_url=metadata_url,
    )
    behind = observed(access)
    return behind if siblings is None else siblings.routed(behind, access.admits)


def _issuer_sign_in(box: Toolbox, callers: Callers, public_url: str) -> IssuerSignIn | None:
    """Return the sign-in to the console with the issuer, if the gateway has a client there."""
    oidc = box.settings.server.oidc
    if oidc is None or oidc.client_id is None or callers.tokens is None:
        return None
    return IssuerSignIn(box, callers, callers.tokens, oidc, public_url)


async def _no_issuer(request: Request) -> Response:
    """Report to the sign-in page that no issuer is set; the browser would log a 404 as an error."""
    if request.method == "HEAD":
        return Response(status_code=204)
    return ProblemResponse(404, "no_issuer", "people sign in with a ticket or a key: server.oidc has no client_id")


async def _not_found(_request: Request, _error: Exception) -> Response:
    return ProblemResponse(404, "not_found", "unknown path; /openapi.json lists the operations")


async def _refused(_request: Request, error: Exception) -> Response:
    return problem_of(cast("ToolError", error))


async def _broken(_request: Request, _error: Exception) -> Response:
    return ProblemResponse(500, "internal_error", "internal error; see the log of the gateway")


@asynccontextmanager
async def open_callers(
    box: Toolbox, folder: Path, operator: str, *, host: str, gateway: str | None = None
) -> AsyncGenerator[Callers]:
    """Open the authentication of callers; raise ConfigError if `host` is public and no caller could authenticate.

    Requests with the token of `server.token`, or of the data `folder`, run as `operator`. `host` is the address of the
    socket. `gateway` is the name of this run of the gateway, which its workers share.
    """
    settings, keys = box.settings, box.store.caller_keys
    oidc = settings.server.oidc
    if not is_loopback(host):
        if oidc is None and not await keys.list():
            raise ConfigError(
                f"{host} is open to other machines, but no caller could authenticate: create a key "
                "(`toolpost keys create NAME`), or set server.oidc"
            )
        if settings.server.public_url is None:
            raise ConfigError(f"{host} is open to other machines: set server.public_url to the address they use")
    async with AsyncExitStack() as stack:
        tokens = None
        if oidc is not None:
            tokens = CallerTokens(oidc.issuer, oidc.audience, network=network_policy(settings))
            stack.push_async_callback(tokens.close)
        who = Principal.parse(operator)
        run = secrets.token_hex(16) if gateway is None else gateway
        sessions = Sessions(box.store.sessions, keys, box.router.emitter, gateway=run, operator=who)
        token = local_token(folder, settings.server.token)
        yield Callers(operator=who, token=token, keys=keys, sessions=sessions, oidc=oidc, tokens=tokens)
