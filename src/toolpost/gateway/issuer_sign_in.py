"""Sign-in to the console with the issuer of callers' tokens: authorization code flow with PKCE, in the browser."""

from __future__ import annotations

import base64
import re
import secrets
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from starlette.responses import Response
from starlette.routing import Route

from toolpost.auth.oauth.authorization import (
    TRANSACTION_TTL_S,
    SignInContext,
    begin_authorization,
    browser_binding,
    callback_parameters,
)
from toolpost.auth.oauth.client import Client
from toolpost.auth.oauth.flow import run_flow
from toolpost.auth.oauth.metadata import ServerMetadata, Trust, discover_server
from toolpost.auth.pending_sign_ins import EncryptedSignIns, PendingSignIn, find_sign_in, redeem
from toolpost.auth.secret import Secret
from toolpost.contracts.callers import OBSERVE
from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.gateway.access import SIGN_IN_CALLBACK, SIGN_IN_START, caller_of
from toolpost.toolbox.account_pages import HtmlPage, notice_page
from toolpost.toolbox.local_tools import network_policy
from toolpost.wire.client import HttpClient

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from starlette.requests import Request

    from toolpost.auth.caller_tokens import CallerTokens
    from toolpost.auth.oauth.tokens import TokenSet
    from toolpost.configuration.settings import OidcSettings
    from toolpost.contracts.callers import Caller
    from toolpost.gateway.access import Callers
    from toolpost.toolbox.box import Toolbox

_KIND = "console-sign-in"
_DISCOVERED_S = 600.0
_INVALID = "invalid_token"
_COOKIE = re.compile(r"[A-Za-z0-9_-]{43}\.[A-Za-z0-9_-]{0,2000}")
_PATH = re.compile(r"/(?![/\\])[!\"$-\[\]-~]{0,1000}")  # a path of this host: visible ASCII without \ and #
_AGAIN = "Open the console and start the sign-in again."


class IssuerSignIn:
    """The routes of the sign-in. A cookie of ten minutes binds it to the browser; the cookie has no other power.

    The result is a ticket in the fragment of a redirect, with which the page opens a session.
    """

    def __init__(self, box: Toolbox, callers: Callers, tokens: CallerTokens, oidc: OidcSettings, url: str) -> None:
        policy = network_policy(box.settings).for_source(oidc.issuer)
        self._box = box
        self._callers = callers
        self._tokens = tokens
        self._oidc = oidc
        self._url = url
        self._trust = Trust(policy=policy)
        self._http = HttpClient(policy)
        self._sign_ins = EncryptedSignIns(box.store.tokens, kind=_KIND)
        self._server: tuple[float, ServerMetadata] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Close the connections to the issuer on exit."""
        try:
            yield
        finally:
            await self._http.close()

    def routes(self) -> list[Route]:
        """Return the routes, which need no bearer."""
        return [Route(SIGN_IN_START, self._start), Route(SIGN_IN_CALLBACK, self._finish)]

    async def _start(self, request: Request) -> Response:
        if request.method == "HEAD":  # the page asks if there is an issuer
            return Response()
        to = request.query_params.get("to", "/")
        to = to if _PATH.fullmatch(to) else "/"
        if request.url.hostname != urlsplit(self._url).hostname:  # the issuer knows the address of public_url only
            return _redirect(f"{self._url}{SIGN_IN_START}?to={quote(to)}")
        try:
            return await self._begin(to)
        except ToolError as error:
            return self._failure(error)

    async def _begin(self, to: str) -> Response:
        oidc, now = self._oidc, time.time()
        cookie = f"{secrets.token_urlsafe(32)}.{base64.urlsafe_b64encode(to.encode()).decode().rstrip('=')}"
        begun = begin_authorization(
            await self._discover(),
            Client(id=oidc.client_id or "", secret=Secret(oidc.client_secret) if oidc.client_secret else None),
            SignInContext(redirect_uri=f"{self._url}{SIGN_IN_CALLBACK}", browser=browser_binding(cookie)),
            resource=oidc.audience if urlsplit(oidc.audience).scheme in ("http", "https") else None,
            scopes=tuple(oidc.scopes),
        )
        await self._sign_ins.purge(now)
        await self._sign_ins.put(PendingSignIn(transaction=begun.transaction))
        return _redirect(begun.url, self._set_cookie(cookie, int(TRANSACTION_TTL_S)))

    async def _discover(self) -> ServerMetadata:
        if self._server is None or time.monotonic() - self._server[0] > _DISCOVERED_S:
            found = await run_flow(discover_server(self._oidc.issuer, trust=self._trust), self._http)
            self._server = time.monotonic(), found
        return self._server[1]

    async def _finish(self, request: Request) -> Response:
        cookie = request.cookies.get(self._cookie_name, "")
        try:
            parameters = callback_parameters(request.url.query)
            if not _COOKIE.fullmatch(cookie):
                raise ToolAuthError("This browser did not start the sign-in, or ten minutes are over.")
            caller = await self._caller_of(await self._redeem(parameters, cookie))
            _, text = await self._callers.sessions.issue_ticket(caller)
        except ToolError as error:
            return self._failure(error)
        to = base64.urlsafe_b64decode(f"{cookie.partition('.')[2]}==").decode()
        return _redirect(f"{self._url}{to if _PATH.fullmatch(to) else '/'}#t={text}", self._set_cookie("", 0))

    async def _redeem(self, parameters: Mapping[str, str], cookie: str) -> TokenSet:
        pending = await find_sign_in(self._sign_ins, parameters.get("state", ""))
        binding = browser_binding(cookie)
        return await redeem(self._sign_ins, pending, parameters, client=self._http, clock=time.time, browser=binding)

    async def _caller_of(self, tokens: TokenSet) -> Caller:
        """Return the person of the tokens: of the access token if it is a JWT for this gateway, else of the ID token.

        A person has just signed in with this client, so it need not be in `person_clients`.
        """
        given = [tokens.access_token, *([] if tokens.id_token is None else [tokens.id_token])]
        refused = ToolAuthError("the issuer returned no token for this gateway", code=_INVALID)
        for token in given:
            if token.reveal().count(".") != 2:
                continue
            try:
                caller = caller_of(await self._tokens.verify(token.reveal()), self._oidc)
            except ToolAuthError as error:
                refused = error
                continue
            if not caller.scopes - OBSERVE:
                raise ToolAuthError(
                    f"{caller.principal} has no role of server.oidc.roles that is for people", code=_INVALID
                )
            return caller._replace(person=True, grants=caller.scopes - OBSERVE)
        raise refused

    def _failure(self, error: ToolError) -> Response:
        error.conceal(self._box.redactor.message)  # an issuer may echo the request
        status = 502 if not isinstance(error, ToolAuthError) else 403
        page = notice_page(status, "You are not signed in", str(error), _AGAIN)
        return _respond(page._replace(more=(("Set-Cookie", self._set_cookie("", 0)),)))

    @property
    def _cookie_name(self) -> str:
        return "__Host-toolpost-sign-in" if self._is_secure else "toolpost-sign-in"

    @property
    def _is_secure(self) -> bool:
        return self._url.startswith("https://")

    def _set_cookie(self, value: str, age_s: int) -> str:
        secure = "; Secure" if self._is_secure else ""
        return f"{self._cookie_name}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax{secure}"


def _redirect(url: str, cookie: str | None = None) -> Response:
    headers = {"Location": url, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return Response(status_code=303, headers=headers if cookie is None else {**headers, "Set-Cookie": cookie})


def _respond(page: HtmlPage) -> Response:
    return Response(page.body, page.status, dict(page.headers))
