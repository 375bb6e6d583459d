"""ASGI app in which browsers connect an account, to be mounted in any other."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import inspect
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from toolpost.auth.consents import Invitation, StartedSignIn
from toolpost.auth.oauth.authorization import browser_binding, callback_parameters
from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.contracts.principal import Principal
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
_HELD = re.compile(r"[A-Za-z0-9_-]{43}")
_FORM = "application/x-www-form-urlencoded"
_IN_A_URL = "%/:=&?~#+!$,;'@()*[]"


def callback_app(box: Toolbox, *, identify: Identify) -> CallbackApp:
    """Return the ASGI app of an open Toolbox: `/oauth/start` and `/oauth/callback/...`, below any mount point.

    `identify` returns who is logged in at the host, as `tenant:user`; only the user whom a link is for may use it.
    """
    return CallbackApp(box, identify)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Visit:
    """One request of a browser."""

    scope: Scope
    fields: Mapping[str, str] = field(repr=False)
    held: str = field(repr=False)
    provider: str = ""


class CallbackApp:
    """ASGI app that starts sign-ins in a browser and finishes those that the same browser started.

    The query is removed from the scope, because servers and hosts log from there.
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
            return notice_page(404, "There is nothing here", "Accounts are connected by links that tools ask for.")
        handle = methods.get(scope["method"])
        if handle is None:
            allowed = ("Allow", ", ".join(methods))
            return notice_page(405, "This is not done here", "Open the link that a tool asked for.", more=(allowed,))
        given = await _body(scope, receive) if scope["method"] == "POST" else query
        if isinstance(given, HtmlPage):
            return given
        try:
            return await handle(_Visit(scope=scope, fields=_fields(given), held=self._held(scope), provider=provider))
        except ToolError as error:
            error.conceal(self._box.redactor.message)  # an issuer may repeat what it was sent
            return failure_page(error)

    async def _invite(self, visit: _Visit) -> HtmlPage:
        """Show the start page; nothing starts before the person presses its button."""
        return self._start_page(await self._read_invitation(visit), visit.held or secrets.token_urlsafe(32))

    async def _begin(self, visit: _Visit) -> HtmlPage:
        """Start the sign-in after the button of the start page."""
        invitation = await self._read_invitation(visit)
        if not visit.held:
            raise ToolAuthError("This browser was not shown the page with the button.", code="oauth_form")
        if not _fits(visit, invitation.secret):  # another tab was given another cookie since, or it is a forgery
            return self._start_page(invitation, visit.held)._replace(status=403)
        started = await self._accounts.consents.start(invitation, browser=browser_binding(visit.held))
        if isinstance(started, StartedSignIn):
            return redirect_page(quote(started.url, safe=_IN_A_URL), self._cookie(visit.held))
        await self._accounts.on_connected(started)
        return self._connected(started.provider)

    async def _finish(self, visit: _Visit) -> HtmlPage:
        """Finish the sign-in and redirect, so that code and state leave the address bar."""
        provider = visit.fields.get("connected", "")
        if provider and visit.held and _fits(visit, provider):
            return self._connected(provider)
        person = await self._person(visit)
        connected = await self._accounts.finish(
            visit.fields, provider=visit.provider, person=person, browser=browser_binding(visit.held)
        )
        if not visit.held:
            return self._connected(connected.provider)
        query = {"connected": connected.provider, "check": _check(visit.held, connected.provider)}
        return redirect_page(f"?{urlencode(query)}")

    def _start_page(self, invitation: Invitation, held: str) -> HtmlPage:
        service = self._accounts.consents.service(invitation.provider)
        asked = StartPageContent(
            service=service.display_name,
            user=str(invitation.person),
            tool=invitation.tool,
            scopes=invitation.challenge.scopes or service.plan.scopes,
            fields=(("ticket", invitation.secret), ("check", _check(held, invitation.secret))),
        )
        return start_page(asked)._replace(more=(self._cookie(held),))

    async def _read_invitation(self, visit: _Visit) -> Invitation:
        invitation = await self._accounts.consents.invitation(visit.fields.get("ticket", ""))
        if await self._person(visit) != invitation.person:
            raise ToolAuthError("The link is for another user than the one who is logged in.", code="oauth_person")
        return invitation

    async def _person(self, visit: _Visit) -> Principal:
        """Return who is logged in at the host."""
        found = self._identify(visit.scope)
        who = await found if inspect.isawaitable(found) else found
        try:
            return Principal.parse(who or "")
        except ValueError:  # a host that puts together `tenant:user` may have neither
            raise ToolAuthError("Nobody is logged in here whom an account could be for.", code="oauth_person") from None

    def _connected(self, provider: str) -> HtmlPage:
        return connected_page(self._accounts.consents.service(provider).display_name)

    @property
    def _accounts(self) -> AccountManager:
        accounts: AccountManager = self._box.accounts
        return accounts

    def _held(self, scope: Scope) -> str:
        """Return the value of this browser's cookie, or an empty text."""
        name, _, _ = self._jar()
        sent = [value.decode("latin-1") for key, value in scope.get("headers", ()) if key.lower() == b"cookie"]
        pairs = (pair.strip().partition("=") for pair in ";".join(sent).split(";"))
        return next((kept for key, _, kept in pairs if key == name and _HELD.fullmatch(kept)), "")

    def _cookie(self, held: str) -> tuple[str, str]:
        name, path, secure = self._jar()
        return "Set-Cookie", f"{name}={held}; Path={path}; HttpOnly; SameSite=Lax{secure}"

    def _jar(self) -> tuple[str, str, str]:
        """Return the cookie's name, path and attributes; it must reach both addresses.

        The `__Host-` prefix keeps a neighbour under the same domain from planting a cookie and having others finish a
        sign-in that it started.
        """
        consents = self._accounts.consents
        if consents.redirect_uri.startswith("https:"):
            return "__Host-toolpost", "/", "; Secure"
        start, back = (urlsplit(url).path.rpartition("/")[0] for url in (consents.start_url, consents.redirect_uri))
        return "toolpost", start if start == back and start else "/", ""


def _route(scope: Scope) -> tuple[str, str]:
    """Return the route of a request and its service.

    Only the end of the path counts: servers, hosts and proxies differ in what they call its root.
    """
    path = f"{str(scope.get('root_path', '')).rstrip('/')}{scope['path']}"
    if path.endswith(_START):
        return _START, ""
    _, found, provider = path.rpartition(f"{_CALLBACK}/")
    return (_CALLBACK, provider) if found and provider else ("", "")


def _check(held: str, shown: str) -> str:
    """Return the token that protects the form against cross-site requests."""
    return hmac.new(held.encode(), shown.encode(), hashlib.sha256).hexdigest()


def _fits(visit: _Visit, shown: str) -> bool:
    return hmac.compare_digest(_check(visit.held, shown).encode(), visit.fields.get("check", "").encode())


def _fields(given: bytes) -> Mapping[str, str]:
    if len(given) > _MOST_BYTES:
        raise ToolAuthError("The address is longer than any that is right.", code="oauth_callback")
    try:
        return callback_parameters(f"?{given.decode('latin-1')}") if given else {}
    except ValueError:  # more fields than anybody has
        raise ToolAuthError("The address has too many parts.", code="oauth_callback") from None


async def _body(scope: Scope, receive: Receive) -> bytes | HtmlPage:
    """Read the submitted form; a page where it is none."""
    kinds = [value for name, value in scope.get("headers", ()) if name.lower() == b"content-type"]
    if not kinds or kinds[0].partition(b";")[0].strip().lower() != _FORM.encode():
        return notice_page(415, "This is no form")
    try:
        async with asyncio.timeout(_FORM_S):
            return await _read(receive)
    except TimeoutError:
        return notice_page(408, "This took too long", "Nothing was connected. Press the button again.")


async def _read(receive: Receive) -> bytes | HtmlPage:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return notice_page(400, "This is not all of it")
        body += message.get("body", b"")
        more = bool(message.get("more_body", False))
        if len(body) > _MOST_BYTES:
            return notice_page(413, "This is too long")
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
