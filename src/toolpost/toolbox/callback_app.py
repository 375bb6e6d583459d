"""ASGI app in which browsers connect an account; it can be mounted in any other app."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import inspect
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Struct

from toolpost.auth.consents import Invitation, StartedSignIn
from toolpost.auth.oauth.authorization import browser_binding, callback_parameters
from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.contracts.principal import Principal
from toolpost.contracts.records import represent
from toolpost.toolbox.account_pages import (
    HtmlPage,
    StartPageContent,
    connected_page,
    failure_page,
    notice_page,
    redirect_page,
    start_page,
)

if TYPE_CHECKING:
    from toolpost.toolbox.accounts import AccountManager
    from toolpost.toolbox.box import Toolbox


Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Identify: TypeAlias = Callable[[Scope], str | Awaitable[str | None] | None]

_START, _CALLBACK = "/oauth/start", "/oauth/callback"
_MOST_BYTES = 16 * 1024
_FORM_S = 30.0
_COOKIE = re.compile(r"[A-Za-z0-9_-]{43}")
_FORM = "application/x-www-form-urlencoded"
_IN_A_URL = "%/:=&?~#+!$,;'@()*[]"


def callback_app(box: Toolbox, *, identify: Identify) -> CallbackApp:
    """Return the ASGI app of an open Toolbox: `/oauth/start` and `/oauth/callback/...`, below any mount point.

    `identify` returns the user who is logged in at the host, as `tenant:user`. Only the user of a link may use it.
    """
    return CallbackApp(box, identify)


class _Visit(Struct, frozen=True, kw_only=True):
    """One request of a browser."""

    scope: Scope
    fields: Mapping[str, str]
    cookie: str
    provider: str = ""

    def __repr__(self) -> str:
        return represent(self, without=("fields", "cookie"))


class CallbackApp:
    """ASGI app that starts sign-ins in a browser and finishes those that the same browser started.

    The query is removed from the scope, because servers and hosts log it.
    """

    def __init__(self, box: Toolbox, identify: Identify) -> None:
        self._box = box
        self._identify = identify
        self._routes: dict[str, dict[str, Callable[[_Visit], Awaitable[HtmlPage]]]] = {
            _START: {"GET": self._invite, "POST": self._begin},
            _CALLBACK: {"GET": self._finish},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            await _show(await self._answer(scope, receive), send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _answer(self, scope: Scope, receive: Receive) -> HtmlPage:
        query, scope["query_string"] = scope.get("query_string", b""), b""
        route, provider = _route(scope)
        methods = self._routes.get(route)
        if methods is None:
            return notice_page(404, "Not found", "Accounts are connected by links that tools request.")
        handle = methods.get(scope["method"])
        if handle is None:
            allowed = ("Allow", ", ".join(methods))
            return notice_page(405, "Method not allowed", "Open the link that a tool requested.", more=(allowed,))
        parameters = await _body(scope, receive) if scope["method"] == "POST" else query
        if isinstance(parameters, HtmlPage):
            return parameters
        try:
            return await handle(
                _Visit(scope=scope, fields=_fields(parameters), cookie=self._cookie_of(scope), provider=provider)
            )
        except ToolError as error:
            error.conceal(self._box.redactor.message)  # an issuer may echo the request
            return failure_page(error)

    async def _invite(self, visit: _Visit) -> HtmlPage:
        """Show the start page; the sign-in starts with its button."""
        return self._start_page(await self._read_invitation(visit), visit.cookie or secrets.token_urlsafe(32))

    async def _begin(self, visit: _Visit) -> HtmlPage:
        """Start the sign-in after the button of the start page."""
        invitation = await self._read_invitation(visit)
        if not visit.cookie:
            raise ToolAuthError("This browser was not shown the page with the button.", code="oauth_form")
        if not _fits(visit, invitation.secret):  # another tab got a newer cookie, or the request is forged
            return self._start_page(invitation, visit.cookie)._replace(status=403)
        started = await self._accounts.consents.start(invitation, browser=browser_binding(visit.cookie))
        if isinstance(started, StartedSignIn):
            return redirect_page(quote(started.url, safe=_IN_A_URL), self._cookie(visit.cookie))
        await self._accounts.on_connected(started)
        return self._connected(started.provider)

    async def _finish(self, visit: _Visit) -> HtmlPage:
        """Finish the sign-in and redirect, which removes code and state from the address bar."""
        provider = visit.fields.get("connected", "")
        if provider and visit.cookie and _fits(visit, provider):
            return self._connected(provider)
        person = await self._person(visit)
        connected = await self._accounts.finish(
            visit.fields, provider=visit.provider, person=person, browser=browser_binding(visit.cookie)
        )
        if not visit.cookie:
            return self._connected(connected.provider)
        query = {"connected": connected.provider, "check": _check(visit.cookie, connected.provider)}
        return redirect_page(f"?{urlencode(query)}")

    def _start_page(self, invitation: Invitation, cookie: str) -> HtmlPage:
        service = self._accounts.consents.service(invitation.provider)
        content = StartPageContent(
            service=service.display_name,
            user=str(invitation.person),
            tool=invitation.tool,
            scopes=invitation.challenge.scopes or service.plan.scopes,
            fields=(("ticket", invitation.secret), ("check", _check(cookie, invitation.secret))),
        )
        return start_page(content)._replace(more=(self._cookie(cookie),))

    async def _read_invitation(self, visit: _Visit) -> Invitation:
        invitation = await self._accounts.consents.invitation(visit.fields.get("ticket", ""))
        if await self._person(visit) != invitation.person:
            raise ToolAuthError("The link is for another user than the one who is logged in.", code="oauth_person")
        return invitation

    async def _person(self, visit: _Visit) -> Principal:
        """Return the user who is logged in at the host."""
        identity = self._identify(visit.scope)
        who = await identity if inspect.isawaitable(identity) else identity
        try:
            return Principal.parse(who or "")
        except ValueError:  # a host may join an empty tenant and user
            raise ToolAuthError("No user is logged in here.", code="oauth_person") from None

    def _connected(self, provider: str) -> HtmlPage:
        return connected_page(self._accounts.consents.service(provider).display_name)

    @property
    def _accounts(self) -> AccountManager:
        accounts: AccountManager = self._box.accounts
        return accounts

    def _cookie_of(self, scope: Scope) -> str:
        """Return the value of this browser's cookie, or an empty string."""
        name, _, _ = self._jar()
        sent = [value.decode("latin-1") for key, value in scope.get("headers", ()) if key.lower() == b"cookie"]
        pairs = (pair.strip().partition("=") for pair in ";".join(sent).split(";"))
        return next((cookie for key, _, cookie in pairs if key == name and _COOKIE.fullmatch(cookie)), "")

    def _cookie(self, cookie: str) -> tuple[str, str]:
        name, path, secure = self._jar()
        return "Set-Cookie", f"{name}={cookie}; Path={path}; HttpOnly; SameSite=Lax{secure}"

    def _jar(self) -> tuple[str, str, str]:
        """Return the cookie's name, path and attributes; it must reach both addresses.

        The `__Host-` prefix prevents another host of the same domain from setting a cookie and having other users
        finish a sign-in that it started.
        """
        consents = self._accounts.consents
        if consents.redirect_uri.startswith("https:"):
            return "__Host-toolpost", "/", "; Secure"
        start, back = (urlsplit(url).path.rpartition("/")[0] for url in (consents.start_url, consents.redirect_uri))
        return "toolpost", start if start == back and start else "/", ""


def _route(scope: Scope) -> tuple[str, str]:
    """Return the route of a request and its service.

    Only the end of the path is compared: servers, hosts and proxies differ in the root path that they report.
    """
    path = f"{str(scope.get('root_path', '')).rstrip('/')}{scope['path']}"
    if path.endswith(_START):
        return _START, ""
    _, separator, provider = path.rpartition(f"{_CALLBACK}/")
    return (_CALLBACK, provider) if separator and provider else ("", "")


def _check(cookie: str, shown: str) -> str:
    """Return the token that protects the form against cross-site requests."""
    return hmac.new(cookie.encode(), shown.encode(), hashlib.sha256).hexdigest()


def _fits(visit: _Visit, shown: str) -> bool:
    return hmac.compare_digest(_check(visit.cookie, shown).encode(), visit.fields.get("check", "").encode())


def _fields(form: bytes) -> Mapping[str, str]:
    if len(form) > _MOST_BYTES:
        raise ToolAuthError("The address is too long.", code="oauth_callback")
    try:
        return callback_parameters(f"?{form.decode('latin-1')}") if form else {}
    except ValueError:  # too many fields
        raise ToolAuthError("The address has too many parameters.", code="oauth_callback") from None


async def _body(scope: Scope, receive: Receive) -> bytes | HtmlPage:
    """Read the submitted form; return an error page if the body is not a form."""
    kinds = [value for name, value in scope.get("headers", ()) if name.lower() == b"content-type"]
    if not kinds or kinds[0].partition(b";")[0].strip().lower() != _FORM.encode():
        return notice_page(415, "This is not a form")
    try:
        async with asyncio.timeout(_FORM_S):
            return await _read(receive)
    except TimeoutError:
        return notice_page(408, "The request timed out", "Nothing was connected. Press the button again.")


async def _read(receive: Receive) -> bytes | HtmlPage:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return notice_page(400, "The request is incomplete")
        body += message.get("body", b"")
        more = bool(message.get("more_body", False))
        if len(body) > _MOST_BYTES:
            return notice_page(413, "The request is too long")
    return body


async def _show(page: HtmlPage, send: Send) -> None:
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in page.headers]
    await send({"type": "http.response.start", "status": page.status, "headers": headers})
    await send({"type": "http.response.body", "body": page.body})


async def _live(receive: Receive, send: Send) -> None:
    """Answer lifespan events; the Toolbox is opened and closed by its owner."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
