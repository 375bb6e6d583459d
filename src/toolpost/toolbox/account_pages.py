"""HTML pages of the sign-in: start, success, failure. They have no scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from typing import Literal, NamedTuple

from toolpost.contracts.errors import ConfigError, ToolAuthError, ToolError

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
# Browsers apply form-action to every redirect after a form, and an issuer may redirect to other hosts.
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
_AGAIN = "open the link again. If that does not help, call the tool again to get a new link."
_OTHERWISE = (502, "The service did not connect", f"Nothing was connected; {_AGAIN}")
_NOT_SET_UP = (500, "This is not set up", "Nothing was connected. Tell the operator of this program.")
_FAILURES = {
    "no_accounts": (404, "There are no accounts here", "No source uses accounts of users, so nothing was connected."),
    "oauth_denied": (403, "Nothing was connected", "If you did not want to decline, open the link again."),
    "oauth_expired": (410, "This link has expired", ""),
    "oauth_browser": (403, "Another browser started this sign-in", "Nothing was connected."),
    "oauth_person": (
        403,
        "This link is for another user",
        "Nothing was connected. Sign in as that user, then come back.",
    ),
    "oauth_form": (403, "Please start again", f"Nothing was connected. Cookies must be allowed here; {_AGAIN}"),
    "oauth_state": (
        400,
        "This sign-in is not in progress",
        f"It may have been finished before. If it was not: {_AGAIN}",
    ),
    "oauth_callback": (400, "This request is invalid", f"Nothing was connected; {_AGAIN}"),
    "oauth_issuer_mismatch": (400, "The response came from another issuer", f"Nothing was connected; {_AGAIN}"),
}
_LINK = '<path d="M10 14a4 4 0 0 0 6 .5l3-3a4 4 0 0 0-6-6l-1 1M14 10a4 4 0 0 0-6-.5l-3 3a4 4 0 0 0 6 6l1-1"/>'
_DONE = '<path d="M5 12.5l4.5 4.5L19 7.5"/>'
_WARN = '<path d="M12 6v7M12 17v.5"/>'


class HtmlPage(NamedTuple):
    """One response to a browser; `more` are header fields in addition to those of every page."""

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
    """The contents of the start page."""

    service: str
    user: str
    tool: str
    scopes: Sequence[str]
    fields: Sequence[tuple[str, str]]


def start_page(content: StartPageContent) -> HtmlPage:
    """Return the page that shows user, tool and scopes, with the button that starts the sign-in."""
    service, user = escape(content.service), escape(content.user)
    scopes = "".join(f"<li><code>{escape(scope)}</code></li>" for scope in content.scopes)
    details = {
        "User": user,
        "Tool": escape(content.tool),
        "Scopes": f'<ul role="list">{scopes}</ul>' if scopes else "",
    }
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in details.items() if value)
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in content.fields
    )
    return _page(
        200,
        f"Connect {service}",
        f"<p>Sign in there. Waiting calls then resume automatically.</p><dl>{rows}</dl>"
        f'<p class="soft">Continue only if you are <b>{user}</b>. If another person sent you this link, close the '
        "page: they would act with your account.</p>"
        f'<form method="post" action="start">{hidden}<button>Continue to sign-in</button></form>',
        mark=_LINK,
        # From a page without a referrer, browsers send a form with `Origin: null` (Fetch, section 3.2), which origin
        # checks reject. The service does not receive the address: redirects have no referrer.
    )._replace(referrer="strict-origin")


def connected_page(service: str) -> HtmlPage:
    """Return the page of a finished sign-in."""
    text = f"<p>Your account at <b>{escape(service)}</b> is connected. Waiting calls resume automatically.</p>"
    return _page(200, "Connected, you can close this page", text, mark=_DONE)


def failure_page(error: ToolError) -> HtmlPage:
    """Return the page that shows why nothing was connected, and the next step."""
    status, heading, advice = _FAILURES.get(error.error_code, _OTHERWISE)
    if isinstance(error, ConfigError) and error.error_code not in _FAILURES:
        status, heading, advice = _NOT_SET_UP
    # Show only messages that are written for users; details of a failed connection stay inside.
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
