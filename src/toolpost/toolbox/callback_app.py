"""Where browsers come to connect an account: a small ASGI app of its own, to be mounted in any other."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import inspect
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from toolpost.auth.consents import StartedSignIn
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
    from collections.abc import Mapping

    from toolpost.auth.consents import Invitation
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
    """The app for an open Toolbox: `/oauth/start` and `/oauth/callback/...`, below whatever it is mounted at.

    `identify` says who is logged in at the host, as `tenant:user`; only the user whom a link is for may use it.
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
    """Begins sign-ins in the browser that came, and finishes those that this very browser began.

    What a browser brings in its query is taken out of the scope, because servers and hosts log from there.
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
        """Show what is asked for; nothing begins before the person says so."""
        return self._invitation(await self._ticket(visit), visit.held or secrets.token_urlsafe(32))

    async def _begin(self, visit: _Visit) -> HtmlPage:
        """The person said so, on the page that this browser was shown."""
        ticket = await self._ticket(visit)
        if not visit.held:
            raise ToolAuthError("This browser was not shown the page with the button.", code="oauth_form")
        if not _fits(visit, ticket.secret):  # another tab was given another cookie in the meantime, or it is a forgery
            return self._invitation(ticket, visit.held)._replace(status=403)
        begun = await self._desk.consents.start(ticket, browser=browser_binding(visit.held))
        if isinstance(begun, StartedSignIn):
            return redirect_page(quote(begun.url, safe=_IN_A_URL), self._cookie(visit.held))
        await self._desk.on_connected(begun)
        return self._connected(begun.provider)

    async def _finish(self, visit: _Visit) -> HtmlPage:
        """The service sent the browser back; where that went well its code and state leave the address bar."""
        told = visit.fields.get("connected", "")
        if told and visit.held and _fits(visit, told):
            return self._connected(told)
        person = await self._person(visit)
        connected = await self._desk.finish(
            visit.fields, provider=visit.provider, person=person, browser=browser_binding(visit.held)
        )
        if not visit.held:
            return self._connected(connected.provider)
        query = {"connected": connected.provider, "check": _check(visit.held, connected.provider)}
        return redirect_page(f"?{urlencode(query)}")

    def _invitation(self, ticket: Invitation, held: str) -> HtmlPage:
        service = self._desk.consents.service(ticket.provider)
        asked = StartPageContent(
            service=service.display_name,
            user=str(ticket.person),
            tool=ticket.tool,
            scopes=ticket.challenge.scopes or service.plan.scopes,
            fields=(("ticket", ticket.secret), ("check", _check(held, ticket.secret))),
        )
        return start_page(asked)._replace(more=(self._cookie(held),))

    async def _ticket(self, visit: _Visit) -> Invitation:
        ticket = await self._desk.consents.ticket(visit.fields.get("ticket", ""))
        if await self._person(visit) != ticket.person:
            raise ToolAuthError("The link is for another user than the one who is logged in.", code="oauth_person")
        return ticket

    async def _person(self, visit: _Visit) -> Principal:
        """Who is logged in at the host."""
        found = self._identify(visit.scope)
        who = await found if inspect.isawaitable(found) else found
        try:
            return Principal.parse(who or "")
        except ValueError:  # a host that puts together `tenant:user` may have neither
            raise ToolAuthError("Nobody is logged in here whom an account could be for.", code="oauth_person") from None

    def _connected(self, provider: str) -> HtmlPage:
        return connected_page(self._desk.consents.service(provider).display_name)

    @property
    def _desk(self) -> AccountManager:
        desk: AccountManager = self._box.accounts
        return desk

    def _held(self, scope: Scope) -> str:
        """What this browser was given to be known again by; empty where it has nothing of the kind."""
        name, _, _ = self._jar()
        sent = [value.decode("latin-1") for key, value in scope.get("headers", ()) if key.lower() == b"cookie"]
        pairs = (pair.strip().partition("=") for pair in ";".join(sent).split(";"))
        return next((kept for key, _, kept in pairs if key == name and _HELD.fullmatch(kept)), "")

    def _cookie(self, held: str) -> tuple[str, str]:
        name, path, secure = self._jar()
        return "Set-Cookie", f"{name}={held}; Path={path}; HttpOnly; SameSite=Lax{secure}"

    def _jar(self) -> tuple[str, str, str]:
        """The cookie's name, path and protection; it must reach both addresses, as browsers see them.

        With its prefix, browsers take it from this very host alone: a neighbour under the same domain who could plant
        one of their own would have others finish a sign-in that they began.
        """
        consents = self._desk.consents
        if consents.redirect_uri.startswith("https:"):
            return "__Host-toolpost", "/", "; Secure"
        start, back = (urlsplit(url).path.rpartition("/")[0] for url in (consents.start_url, consents.redirect_uri))
        return "toolpost", start if start == back and start else "/", ""


def _route(scope: Scope) -> tuple[str, str]:
    """Which address was asked for, and of which service.

    Of a path the end counts: servers, hosts and proxies differ in what of it they call its root.
    """
    path = f"{str(scope.get('root_path', '')).rstrip('/')}{scope['path']}"
    if path.endswith(_START):
        return _START, ""
    _, found, provider = path.rpartition(f"{_CALLBACK}/")
    return (_CALLBACK, provider) if found and provider else ("", "")


def _check(held: str, shown: str) -> str:
    """What only a page that this browser was shown can hold: another site cannot press the button for it."""
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
    """The form that was sent, as far as it is one."""
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
    """The Toolbox is opened and closed by whoever made it; there is nothing else to prepare."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
