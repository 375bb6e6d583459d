"""What hosts, proxies and attackers send to the callback app, and browsers do not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from fastapi import FastAPI

from tests.browser.bare import Issuer, begun, opened, sent, ticket
from tests.toolbox.signing_in import logged_in, outcome_of, toolbox
from toolpost import ConfigError, Toolbox
from toolpost.toolbox.callback_app import callback_app

pytestmark = pytest.mark.programs


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with Issuer() as issuer:
        yield issuer


@pytest.fixture
async def box(issuer: Issuer, tmp_path: Path) -> AsyncIterator[Toolbox]:
    async with opened(issuer, tmp_path) as box:
        yield box


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("", "/oauth/start"),
        ("/oauth", "/oauth/start"),
        ("/oauth", "/start"),
        ("/tools", "/tools/oauth/start"),
        ("/api/tools", "/tools/oauth/start"),
        ("/tools/oauth/", "/tools/oauth/start"),
    ],
)
async def test_it_finds_its_addresses_whatever_a_server_calls_the_root(box: Toolbox, root: str, path: str) -> None:
    app, secret = callback_app(box, identify=logged_in), await ticket(box)

    assert (await sent(app, path, root=root, query=f"ticket={secret}".encode())).status == 200
    assert (await sent(app, path.replace("start", "begin"), root=root)).status == 404


async def test_it_works_in_a_host_behind_a_proxy_that_takes_the_prefix_away(box: Toolbox) -> None:
    host = FastAPI()
    host.mount("/tools", callback_app(box, identify=logged_in))
    proxied = httpx2.ASGITransport(host, root_path="/api")
    async with httpx2.AsyncClient(transport=proxied, base_url="http://inside") as web:
        page = await web.get(f"/tools/oauth/start?ticket={await ticket(box)}")

    assert (page.status_code, "Connect notes" in page.text) == (200, True)


async def test_what_a_request_says_of_its_host_is_not_believed(box: Toolbox) -> None:
    app, secret = callback_app(box, identify=logged_in), await ticket(box)
    evil = [(b"host", b"evil.example"), (b"x-forwarded-host", b"evil.example"), (b"origin", b"https://evil.example")]
    page = await sent(app, "/oauth/start", query=f"ticket={secret}".encode(), headers=evil)
    redirect = await sent(app, "/oauth/start", headers=[*evil, (b"cookie", page.cookie)], form=page.form)

    assert redirect.status == 303
    assert "evil" not in page.text + redirect.headers["location"] + page.headers["set-cookie"]
    assert urlencode({"redirect_uri": "http://localhost:9/oauth/callback/notes"}) in redirect.headers["location"]


async def test_a_cookie_may_come_in_crumbs(box: Toolbox) -> None:
    """RFC 9113 section 8.2.3: HTTP/2 may split the field, and not every server puts it together again."""
    app, secret = callback_app(box, identify=logged_in), await ticket(box)
    page = await sent(app, "/oauth/start", query=f"ticket={secret}".encode())
    crumbs = [(b"cookie", b"theme=dark"), (b"Cookie", b"toolpost=short; " + page.cookie), (b"cookie", b"z=1")]

    assert (await sent(app, "/oauth/start", headers=crumbs, form=page.form)).status == 303


async def test_a_form_whose_sender_left_begins_nothing(box: Toolbox) -> None:
    app, secret = callback_app(box, identify=logged_in), await ticket(box)
    page = await sent(app, "/oauth/start", query=f"ticket={secret}".encode())
    half = {"type": "http.request", "body": urlencode(page.form).encode(), "more_body": True}
    gone = {"type": "http.disconnect"}

    left = await sent(app, "/oauth/start", headers=[(b"cookie", page.cookie)], messages=[half, gone])

    assert left.status == 400
    assert "location" not in left.headers


async def test_a_form_that_does_not_end_is_not_waited_for(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.toolbox.callback_app._FORM_S", 0.01)
    half = {"type": "http.request", "body": b"ticket=", "more_body": True}

    assert (await sent(callback_app(box, identify=logged_in), "/oauth/start", messages=[half])).status == 408


@pytest.mark.parametrize("who", [":", "acme:", ":ann", "", None, "acme:bob", "ann"])
async def test_a_host_that_knows_no_one_lets_no_one_in(box: Toolbox, who: str | None) -> None:
    app, secret = callback_app(box, identify=lambda _: who), await ticket(box)

    refused = await sent(app, "/oauth/start", query=f"ticket={secret}".encode())

    assert (refused.status, "This link is for another user" in refused.text) == (403, True)
    assert "set-cookie" not in refused.headers


async def test_a_question_mark_in_what_a_service_says_hides_nothing(box: Toolbox) -> None:
    app = callback_app(box, identify=logged_in)
    redirect, cookie = await begun(app, await ticket(box))
    query = f"state={redirect.state}&error=access_denied&error_description=Really?&x=1".encode()

    shown = await sent(app, "/oauth/callback/notes", query=query, headers=[(b"cookie", cookie)])

    assert (shown.status, "The sign-in was declined: Really?" in shown.text) == (403, True)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        (b"ticket=%ff%fe", 410),
        (b"ticket=\xff\x00\xc3", 410),
        (b"ticket=%ED%A0%80", 410),
        (b"ticket=" + b"%41" * 2000, 410),
        (b"ticket=" + b"x" * 20_000, 400),
        (b"ticket=a&ticket=b", 400),
        (b"ticket[]=a", 410),
        (b"?ticket=a", 410),
        (b"%", 410),
    ],
    ids=["not utf-8", "raw bytes", "surrogate", "long", "too long", "twice", "list", "question mark", "percent"],
)
async def test_queries_that_no_one_means_well_are_refused_plainly(box: Toolbox, query: bytes, status: int) -> None:
    shown = await sent(callback_app(box, identify=logged_in), "/oauth/start", query=query)

    assert (shown.status, "<h1>" in shown.text) == (status, True)


async def test_a_browser_that_leaves_while_the_code_is_redeemed_loses_nothing(box: Toolbox, issuer: Issuer) -> None:
    app = callback_app(box, identify=logged_in)
    redirect, cookie = await begun(app, await ticket(box))
    [waiting] = await box.pending.list(by="acme:ann")
    issuer.may_answer.clear()
    query = urlencode({"state": redirect.state, "code": "c"}).encode()
    visiting = asyncio.create_task(sent(app, "/oauth/callback/notes", query=query, headers=[(b"cookie", cookie)]))
    await asyncio.wait_for(issuer.asked.wait(), 20)

    visiting.cancel()
    await asyncio.wait([visiting])
    issuer.may_answer.set()
    outcome = await outcome_of(box, waiting.id, by="acme:ann")

    assert (visiting.cancelled(), outcome["status"]) == (True, "completed")
    assert box.accounts.counts.snapshot()["callbacks"] == {"success": 1}


async def test_over_https_only_this_very_host_can_set_the_cookie(issuer: Issuer, tmp_path: Path) -> None:
    async with opened(issuer, tmp_path, "https://tools.example/deep/down") as box:
        app, secret = callback_app(box, identify=logged_in), await ticket(box)
        page = await sent(app, "/deep/down/oauth/start", query=f"ticket={secret}".encode())
        other = (b"cookie", page.cookie.replace(b"__Host-", b""))

        refused = await sent(app, "/deep/down/oauth/start", headers=[other], form=page.form)

    name, _, rest = page.headers["set-cookie"].partition("=")
    assert (name, rest[43:]) == ("__Host-toolpost", "; Path=/; HttpOnly; SameSite=Lax; Secure")
    assert (refused.status, "Cookies must be allowed here" in refused.text) == (403, True)


@pytest.mark.parametrize("back", ["https://other.example/cb", "http://tools.example/cb"])
async def test_addresses_that_no_cookie_reaches_both_of_are_refused_at_once(tmp_path: Path, back: str) -> None:
    source: dict[str, Any] = {
        "name": "notes",
        "transport": "http",
        "connection": "https://api.example/openapi.json",
        "auth_type": "oauth2_user",
    }
    with pytest.raises(ConfigError, match="the same scheme and host"):
        async with toolbox(source, "https://tools.example", redirect_uri=back):
            pass
