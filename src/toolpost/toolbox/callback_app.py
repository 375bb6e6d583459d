"""ASGI app in which browsers connect an account, to be mounted in any other; its pages have no scripts."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import inspect
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Struct

from toolpost.auth.consents import Invitation, StartedSignIn
from toolpost.auth.oauth.authorization import browser_binding, callback_parameters
from toolpost.contracts.errors import ConfigError, ToolAuthError, ToolError
from toolpost.contracts.principal import Principal
from toolpost.contracts.records import represent

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
_STYLE = """
:root{color-scheme:light dark;--back:#eff2f0;--card:#fff;--text:#19201c;--soft:#56605a;--line:#dbe1dd;--tint:#f5f7f6;
--accent:#17684a;--on:#fff;--good:#17684a;--good-back:#dff2e8;--warn:#8a4b00;--warn-back:#fdf0db}
@media(prefers-color-scheme:dark){:root{--back:#121614;--card:#1c221f;--text:#edf1ee;--soft:#a9b4ae;--line:#343d38;
--tint:#232a26;--accent:#5fd3a2;--on:#06281a;--good:#6fdcae;--good-back:#173528;--warn:#f5bd6b;--warn-back:#3b2c12}}
*{box-sizing:border-box}
body{margin:0;min-height:100vh;min-height:100dvh;display:grid;place-items:center;padding:1.25rem;background:var(--back);
color:var(--text);font:1rem/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{width:100%;max-width:31rem;padding:2.25rem;background:var(--card);border:1px solid var(--line);border-radius:1rem;
box-shadow:0 1px 2px rgb(0 0 0/.05),0 12px 32px rgb(0 0 0/.07)}
svg{display:block;width:3rem;height:3rem;padding:.7rem;margin-bottom:1rem;border-radius:50%;fill:none;
stroke:currentColor;stroke-width:2;stroke-linecap:round;stroke-linejoin:round;color:var(--good);
background:var(--good-back)}
.warn svg{color:var(--warn);background:var(--warn-back)}
h1{margin:0 0 .75rem;font-size:1.375rem;line-height:1.3;font-weight:650;letter-spacing:-.01em;text-wrap:balance}
p{margin:0 0 1rem}
main>:last-child{margin-bottom:0}
h1,p,dd,b,code{overflow-wrap:anywhere}
b,code,dd{unicode-bidi:isolate}
b{font-weight:600}
dl{margin:1rem 0;border:1px solid var(--line);border-radius:.6rem}
dl div{display:flex;gap:1rem;padding:.6rem 1rem}
dl div+div{border-top:1px solid var(--line)}
dt{flex:0 0 3.75rem;color:var(--soft)}
dd{margin:0;min-width:0;font-weight:600}
ul{display:flex;flex-wrap:wrap;gap:.4rem;margin:.1rem 0;padding:0;list-style:none}
li{min-width:0}
code{display:inline-block;padding:.05rem .5rem;border:1px solid var(--line);border-radius:.35rem;background:var(--tint);
font:500 .875rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.soft{color:var(--soft);font-size:.9375rem}
.soft b{color:var(--text)}
button{display:block;width:100%;min-height:3rem;padding:.6rem 1.25rem;border:1px solid transparent;
border-radius:.6rem;background:var(--accent);color:var(--on);font:inherit;font-weight:600;cursor:pointer}
button:hover{filter:brightness(1.08)}
button:focus-visible{outline:3px solid var(--accent);outline-offset:3px}
@media(max-width:30rem){body{padding:.75rem;place-items:start stretch}main{padding:1.5rem 1.25rem}}
""".replace("\n", "")
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
# Browsers hold every redirect that follows a form to form-action, and an issuer may send people on to others.
_RULES = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self' https: http:; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", _RULES),
    ("X-Frame-Options", "DENY"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
_AGAIN = "open the link again. If that does not help, ask for the tool once more to get a new one."
_OTHERWISE = (502, "The service did not connect", f"Nothing was connected; {_AGAIN}")
_NOT_SET_UP = (500, "This is not set up", "Nothing was connected. Tell whoever runs this program.")
_FAILURES = {
    "oauth_denied": (403, "Nothing was connected", "If you did not mean to say no, open the link again."),
    "oauth_expired": (410, "This is too old", ""),
    "oauth_browser": (403, "Another browser began this", "Nothing was connected."),
    "oauth_person": (403, "This is for somebody else", "Nothing was connected. Sign in as that user, then come back."),
    "oauth_form": (403, "Please begin again", f"Nothing was connected. Cookies must be allowed here; {_AGAIN}"),
    "oauth_state": (400, "This sign-in is not under way", f"It may have been finished before. If it was not: {_AGAIN}"),
    "oauth_callback": (400, "This cannot be read", f"Nothing was connected; {_AGAIN}"),
    "oauth_issuer_mismatch": (400, "The answer came from somebody else", f"Nothing was connected; {_AGAIN}"),
}
_LINK = '<path d="M10 14a4 4 0 0 0 6 .5l3-3a4 4 0 0 0-6-6l-1 1M14 10a4 4 0 0 0-6-.5l-3 3a4 4 0 0 0 6 6l1-1"/>'
_DONE = '<path d="M5 12.5l4.5 4.5L19 7.5"/>'
_WARN = '<path d="M12 6v7M12 17v.5"/>'


def callback_app(box: Toolbox, *, identify: Identify) -> CallbackApp:
    """Return the ASGI app of an open Toolbox: `/oauth/start` and `/oauth/callback/...`, below any mount point.

    `identify` returns who is logged in at the host, as `tenant:user`; only the user whom a link is for may use it.
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
        parameters = await _body(scope, receive) if scope["method"] == "POST" else query
        if isinstance(parameters, HtmlPage):
            return parameters
        try:
            return await handle(
                _Visit(scope=scope, fields=_fields(parameters), cookie=self._cookie_of(scope), provider=provider)
            )
        except ToolError as error:
            error.conceal(self._box.redactor.message)  # an issuer may repeat what it was sent
            return failure_page(error)

    async def _invite(self, visit: _Visit) -> HtmlPage:
        """Show the start page; nothing starts before the person presses its button."""
        return self._start_page(await self._read_invitation(visit), visit.cookie or secrets.token_urlsafe(32))

    async def _begin(self, visit: _Visit) -> HtmlPage:
        """Start the sign-in after the button of the start page."""
        invitation = await self._read_invitation(visit)
        if not visit.cookie:
            raise ToolAuthError("This browser was not shown the page with the button.", code="oauth_form")
        if not _fits(visit, invitation.secret):  # another tab was given another cookie since, or it is a forgery
            return self._start_page(invitation, visit.cookie)._replace(status=403)
        started = await self._accounts.consents.start(invitation, browser=browser_binding(visit.cookie))
        if isinstance(started, StartedSignIn):
            return redirect_page(quote(started.url, safe=_IN_A_URL), self._cookie(visit.cookie))
        await self._accounts.on_connected(started)
        return self._connected(started.provider)

    async def _finish(self, visit: _Visit) -> HtmlPage:
        """Finish the sign-in and redirect, so that code and state leave the address bar."""
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
        """Return who is logged in at the host."""
        identity = self._identify(visit.scope)
        who = await identity if inspect.isawaitable(identity) else identity
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

    def _cookie_of(self, scope: Scope) -> str:
        """Return the value of this browser's cookie, or an empty text."""
        name, _, _ = self._jar()
        sent = [value.decode("latin-1") for key, value in scope.get("headers", ()) if key.lower() == b"cookie"]
        pairs = (pair.strip().partition("=") for pair in ";".join(sent).split(";"))
        return next((cookie for key, _, cookie in pairs if key == name and _HELD.fullmatch(cookie)), "")

    def _cookie(self, cookie: str) -> tuple[str, str]:
        name, path, secure = self._jar()
        return "Set-Cookie", f"{name}={cookie}; Path={path}; HttpOnly; SameSite=Lax{secure}"

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
    _, separator, provider = path.rpartition(f"{_CALLBACK}/")
    return (_CALLBACK, provider) if separator and provider else ("", "")


def _check(cookie: str, shown: str) -> str:
    """Return the token that protects the form against cross-site requests."""
    return hmac.new(cookie.encode(), shown.encode(), hashlib.sha256).hexdigest()


def _fits(visit: _Visit, shown: str) -> bool:
    return hmac.compare_digest(_check(visit.cookie, shown).encode(), visit.fields.get("check", "").encode())


def _fields(form: bytes) -> Mapping[str, str]:
    if len(form) > _MOST_BYTES:
        raise ToolAuthError("The address is longer than any that is right.", code="oauth_callback")
    try:
        return callback_parameters(f"?{form.decode('latin-1')}") if form else {}
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


class HtmlPage(NamedTuple):
    """One response to a browser; `more` are header fields beside those that every page has."""

    status: int
    body: bytes
    more: tuple[tuple[str, str], ...] = ()
    referrer: Literal["no-referrer", "strict-origin"] = "no-referrer"

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """All header fields."""
        own = (("Referrer-Policy", self.referrer), ("Content-Length", str(len(self.body))))
        return (*HEADERS, *self.more, *own)


class StartPageContent(NamedTuple):
    """What the start page shows before the sign-in."""

    service: str
    user: str
    tool: str
    scopes: Sequence[str]
    fields: Sequence[tuple[str, str]]


def start_page(asked: StartPageContent) -> HtmlPage:
    """Return the page that shows who asks for what, with the button that starts the sign-in."""
    service, user = escape(asked.service), escape(asked.user)
    scopes = "".join(f"<li><code>{escape(scope)}</code></li>" for scope in asked.scopes)
    details = {
        "User": user,
        "Tool": escape(asked.tool),
        "Scopes": f'<ul role="list">{scopes}</ul>' if scopes else "",
    }
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in details.items() if value)
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in asked.fields
    )
    return _page(
        200,
        f"Connect {service}",
        f"<p>Sign in there, and what waited for it goes on by itself.</p><dl>{rows}</dl>"
        f'<p class="soft">Go on only if you are <b>{user}</b>. If somebody else sent you this link, close the page: '
        "they would act with your account.</p>"
        f'<form method="post" action="start">{hidden}<button>Continue to sign-in</button></form>',
        mark=_LINK,
        # From a page without a referrer browsers send a form with `Origin: null` (Fetch, section 3.2), which whoever
        # looks at the origin of requests takes for a foreign page's. The service is told nothing: redirects have none.
    )._replace(referrer="strict-origin")


def connected_page(service: str) -> HtmlPage:
    """Return the page of a finished sign-in."""
    text = f"<p>Your account at <b>{escape(service)}</b> is connected. What waited for it goes on by itself.</p>"
    return _page(200, "Connected, you can close this page", text, mark=_DONE)


def failure_page(error: ToolError) -> HtmlPage:
    """Return the page that says why nothing was connected, and what to do."""
    status, heading, advice = _FAILURES.get(error.error_code, _OTHERWISE)
    if isinstance(error, ConfigError):
        status, heading, advice = _NOT_SET_UP
    # Only what was written for people; how a connection failed is nobody's business outside.
    for_people = isinstance(error, ToolAuthError) and error.error_code != "oauth_state"
    message = str(error) if for_people else ""
    return notice_page(status, heading, message, advice)


def notice_page(status: int, heading: str, *texts: str, more: tuple[tuple[str, str], ...] = ()) -> HtmlPage:
    """Return a page of plain sentences under a heading."""
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in texts if text)
    return _page(status, escape(heading), paragraphs)._replace(more=more)


def redirect_page(url: str, *more: tuple[str, str]) -> HtmlPage:
    """Return a redirect."""
    return HtmlPage(303, b"", (("Location", url), *more))


def _page(status: int, heading: str, body: str, *, mark: str = _WARN) -> HtmlPage:
    tone = ' class="warn"' if mark == _WARN else ""
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{heading}</title><style>{_STYLE}</style></head>"
        f'<body><main{tone}><svg viewBox="0 0 24 24" aria-hidden="true">{mark}</svg>'
        f"<h1>{heading}</h1>{body}</main></body></html>\n"
    )
    return HtmlPage(status, text.encode("utf-8", "replace"))
