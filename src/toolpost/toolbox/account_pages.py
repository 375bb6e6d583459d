"""The pages for people who connect an account: plain HTML, without scripts and without anything from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from toolpost.contracts.errors import ConfigError, ToolAuthError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.contracts.errors import ToolError

_STYLE = (
    "body{font:1.05rem/1.55 system-ui,sans-serif;margin:0;background:#f5f5f2;color:#1c1c1a}"
    "main{max-width:34rem;margin:12vh auto;padding:2rem 2.25rem;background:#fff;border:1px solid #ddd;"
    "border-radius:.6rem}h1{font-size:1.4rem;margin:0 0 1rem}b,code{overflow-wrap:anywhere}"
    "button{font:inherit;padding:.55rem 1.4rem;border:0;border-radius:.4rem;background:#1f5f45;color:#fff;"
    "cursor:pointer}@media(prefers-color-scheme:dark){body{background:#161615;color:#eee}"
    "main{background:#222220;border-color:#444}}"
)
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
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)


class Page(NamedTuple):
    """One answer to a browser; `more` are header fields beside those that every page has."""

    status: int
    body: bytes
    more: tuple[tuple[str, str], ...] = ()

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """All fields of its head."""
        return (*HEADERS, *self.more, ("Content-Length", str(len(self.body))))


class Invitation(NamedTuple):
    """What a person is told before the sign-in begins."""

    service: str
    user: str
    tool: str
    scopes: Sequence[str]
    fields: Sequence[tuple[str, str]]


def start_page(asked: Invitation) -> Page:
    """Who asks for what, and one button; pressing it is what begins the sign-in."""
    service, user = escape(asked.service), escape(asked.user)
    wanted = f" The tool <b>{escape(asked.tool)}</b> asked for it." if asked.tool else ""
    scopes = ", ".join(f"<code>{escape(scope)}</code>" for scope in asked.scopes)
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in asked.fields
    )
    return _page(
        200,
        f"Connect {service}",
        f"<p>Your account at <b>{service}</b> will be connected for the user <b>{user}</b>.{wanted}</p>"
        + (f"<p>{service} is asked for: {scopes}.</p>" if scopes else "")
        + f"<p>Go on only if you are <b>{user}</b>. If somebody else sent you this link, close the page: "
        "they would act with your account.</p>"
        f'<form method="post" action="start">{hidden}<button>Continue</button></form>',
    )


def connected_page(service: str) -> Page:
    """The sign-in is done."""
    text = f"<p>Your account at <b>{escape(service)}</b> is connected. What waited for it goes on by itself.</p>"
    return _page(200, "Connected, you can close this page", text)


def failure_page(error: ToolError) -> Page:
    """Why nothing was connected, and what to do."""
    status, heading, advice = _FAILURES.get(error.error_code, _OTHERWISE)
    if isinstance(error, ConfigError):
        status, heading, advice = _NOT_SET_UP
    # Only what was written for people; how a connection failed is nobody's business outside.
    told = str(error) if isinstance(error, ToolAuthError) else ""
    return notice_page(status, heading, told, advice)


def notice_page(status: int, heading: str, *texts: str, more: tuple[tuple[str, str], ...] = ()) -> Page:
    """Plain sentences under a heading."""
    return _page(status, escape(heading), "".join(f"<p>{escape(text)}</p>" for text in texts if text), more)


def redirect_page(url: str, *more: tuple[str, str]) -> Page:
    """On to the service."""
    return Page(303, b"", (("Location", url), *more))


_AGAIN = "Open the link again. If that does not help, ask for the tool once more to get a new one."
_OTHERWISE = (502, "The service did not connect", f"Nothing was connected. {_AGAIN}")
_NOT_SET_UP = (500, "This is not set up", "Nothing was connected. Tell whoever runs this program.")
_FAILURES = {
    "oauth_denied": (403, "Nothing was connected", "If you did not mean to say no, open the link again."),
    "oauth_expired": (410, "This is too old", _AGAIN),
    "oauth_browser": (403, "Another browser began this", "Nothing was connected."),
    "oauth_person": (403, "This is for somebody else", "Nothing was connected. Sign in as that user, then come back."),
    "oauth_form": (403, "Please begin again", f"Nothing was connected. Cookies must be allowed here. {_AGAIN}"),
    "oauth_state": (400, "This sign-in is not under way", f"It may have been finished before. If not: {_AGAIN}"),
    "oauth_callback": (400, "This cannot be read", f"Nothing was connected. {_AGAIN}"),
    "oauth_issuer_mismatch": (400, "The answer came from somebody else", f"Nothing was connected. {_AGAIN}"),
}


def _page(status: int, heading: str, body: str, more: tuple[tuple[str, str], ...] = ()) -> Page:
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{heading}</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{heading}</h1>{body}</main></body></html>\n"
    )
    return Page(status, text.encode("utf-8", "replace"), more)
