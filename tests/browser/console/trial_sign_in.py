"""Sessions of people: at a real issuer, ended by themselves or by others, and out of reach of another port."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.auth.oauth.provider import RESOURCE, provider
from tests.browser.console.conftest import Guest
from tests.browser.console.desk import Desk, open_desk
from tests.browser.console.visitor import ConsoleVisitor, answer, axe, consents, enters, live, press, storage
from tests.wire.site import Site, reply
from toolpost.contracts.callers import Caller
from toolpost.contracts.principal import Principal
from toolpost.gateway.caller_keys import create_caller_key
from toolpost.gateway.sessions import issue_ticket

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs, pytest.mark.slow]

CLIENT: dict[str, Any] = {
    "client_id": "console",
    "token_endpoint_auth_method": "none",
    "application_type": "native",  # so that the port of a loopback redirect may differ
    "redirect_uris": ["http://127.0.0.1/sign-in/callback"],
}
FONTS = "fonts.googleapis.com"  # of the pages of oidc-provider
WITH_THE_ISSUER = "Continue with your organization"
MALLORY = Principal.parse("acme:mallory")


@pytest.fixture(scope="module")
def organization() -> Iterator[str]:
    with provider(CLIENT) as issuer:
        yield issuer


@pytest_asyncio.fixture(loop_scope="session")
async def at_issuer(organization: str, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk at which people sign in with their organization."""
    oidc = {
        "issuer": organization,
        "audience": RESOURCE,
        "tenant": "acme",
        "roles_claim": "scope",
        "roles": {"tools.call": {"scopes": ["call", "answer"]}},
        "client_id": "console",
        "scopes": ["openid", "tools.call"],
    }
    async with open_desk(tmp_path, server={"oidc": oidc}) as desk:
        yield desk


async def test_a_person_signs_in_at_the_issuer_answers_and_signs_out(
    at_issuer: Desk, organization: str, guest: Guest
) -> None:
    pending = await at_issuer.asks("bank.transfer", to="ACME", euro=20)
    alice: ConsoleVisitor = await guest(at_issuer.url)
    alice.allowed |= {urlsplit(organization).netloc, FONTS}
    tab = await alice.opens(f"/approvals/{pending}?mine=no")
    async with tab.expect_navigation():
        await tab.get_by_role("link", name=WITH_THE_ISSUER).click()
    await consents(tab, at_issuer.url)
    await expect(live(tab)).to_be_visible()
    address = tab.url
    await press(answer(tab, "approve"))
    await expect(tab.get_by_text("Completed in")).to_be_visible()
    await tab.get_by_role("button", name="alice").click()
    await tab.get_by_role("menuitem", name="Sign out").click()
    await expect(tab.get_by_role("heading", name="Sign in", exact=True)).to_be_visible()
    kept = (await at_issuer.gate.http.get("/api/v1/sessions")).json()["items"]

    assert address == f"{at_issuer.url}/approvals/{pending}?mine=no"
    assert len(at_issuer.ran("bank.transfer")) == 1
    assert "toolpost.session" not in await storage(tab)
    assert kept == []


async def test_a_person_who_declines_at_the_issuer_sees_the_reason_and_can_start_again(
    at_issuer: Desk, organization: str, guest: Guest
) -> None:
    alice: ConsoleVisitor = await guest(at_issuer.url)
    alice.allowed |= {urlsplit(organization).netloc, FONTS}
    tab = await alice.opens("/runs")
    async with tab.expect_navigation():
        await tab.get_by_role("link", name=WITH_THE_ISSUER).click()
    async with tab.expect_navigation():
        await tab.get_by_role("link", name="Cancel").click()

    await expect(tab.get_by_role("heading", name="You are not signed in")).to_be_visible()
    await expect(tab.get_by_text("declined", exact=False).first).to_be_visible()
    await tab.goto(f"{at_issuer.url}/runs")
    await expect(tab.get_by_role("link", name=WITH_THE_ISSUER)).to_be_visible()


async def test_a_session_that_an_administrator_ends_keeps_the_draft_of_its_person(desk: Desk, guest: Guest) -> None:
    pending = await desk.asks("mail.send", to="ann@shop.example", subject="Offer", text="A lamp?")
    bob, olga = await guest(desk.url), await guest(desk.url)
    key = await desk.person("acme:bob")
    his = await bob.signs_in_with(key, f"/approvals/{pending}")
    await press(answer(his, "modify"))
    await his.get_by_label("subject").fill("A better offer")
    hers = await olga.signs_in(await desk.ticket())
    await hers.goto(f"{desk.url}/settings/sessions")
    await hers.get_by_role("row", name="acme:bob").get_by_role("button", name="End").click()
    await expect(hers.get_by_role("row", name="acme:bob")).to_have_count(0)
    await expect(his.get_by_role("heading", name="Your session ended")).to_be_visible()
    await enters(his, key)
    await expect(his.get_by_label("subject")).to_have_value("A better offer")
    await his.get_by_role("button", name="Approve with 1 change").click()
    await expect(his.get_by_text("Completed in")).to_be_visible()

    assert [mail["subject"] for mail in desk.ran("mail.send")] == ["A better offer"]


async def test_a_person_who_signs_in_over_another_sees_nothing_of_the_other(desk: Desk, guest: Guest) -> None:
    pending = await desk.asks("bank.transfer", by="acme:bob", to="ACME", euro=20)
    both = await guest(desk.url)
    tab = await both.signs_in_with(await desk.person("acme:bob"), f"/approvals/{pending}")
    link = await desk.ticket()
    await tab.goto(link)
    await expect(tab.get_by_text("You are acme:bob. The link signs in acme:olga.")).to_be_visible()
    await tab.get_by_role("button", name="Continue as acme:olga").click()

    await expect(tab.get_by_role("button", name="acme:olga")).to_be_visible()
    await expect(tab.get_by_role("button", name="acme:bob")).to_have_count(0)


async def test_a_link_with_the_sign_in_of_another_person_asks_before_it_signs_anybody_in(
    desk: Desk, guest: Guest
) -> None:
    box, ann = desk.gate.box, await guest(desk.url)
    key, _ = await create_caller_key(box, "theirs", MALLORY, ("call", "answer"), by=str(MALLORY), person=True)
    mallory = Caller(f"key:{key.id}", MALLORY, frozenset(), grants=key.scopes)
    links = [(await issue_ticket(box.store.sessions, mallory, now=time.time()))[1] for _ in range(2)]
    tab = await ann.opens(f"/approvals#t={links[0]}")
    await expect(tab.get_by_role("heading", name="The link signs in acme:mallory")).to_be_visible()
    found = await axe(tab)
    await tab.get_by_role("button", name="Sign in another way").click()
    await expect(tab.get_by_label("Key", exact=True)).to_be_visible()
    kept = await storage(tab)
    await expect(tab.get_by_role("heading", name="Sign in", exact=True)).to_be_visible()
    async with asyncio.timeout(30):
        while await box.store.sessions.list(tenant="acme"):
            await asyncio.sleep(0.01)
    tab = await ann.opens(f"/approvals#t={links[1]}")
    await tab.get_by_role("button", name="Continue as acme:mallory").click()
    await expect(tab.get_by_role("button", name="acme:mallory")).to_be_visible()

    assert found == []
    assert "toolpost.session" not in kept


BLOCKED = "net::ERR_FAILED"
PREVIEW = """<!doctype html><title>Shop</title><h1>Preview of the shop</h1><script>
window.tried = {};
const gateway = '%(gateway)s';
const card = gateway + '/api/v1/pending/%(pending)s/answer';
const note = (name, promise) => promise.then((it) => { tried[name] = it; }, (error) => { tried[name] = error.name; });
const answer = { method: 'POST', body: JSON.stringify({ decision: 'approve' }), credentials: 'include' };
tried.storage = localStorage.length + sessionStorage.length;
tried.cookie = document.cookie;
note('read', fetch(gateway + '/api/v1/pending').then((reply) => reply.status));
const json = { 'Content-Type': 'application/json' };
note('answer', fetch(card, { ...answer, headers: json }).then((reply) => reply.status));
note('blind', fetch(card, { ...answer, mode: 'no-cors' }).then((reply) => reply.type));
const frame = document.createElement('iframe');
frame.src = gateway + '/approvals/%(pending)s';
frame.onload = () => { tried.frame = frame.contentDocument ? 'read' : 'closed'; };
document.body.append(frame);
</script>"""


async def test_a_page_of_an_agent_on_another_port_cannot_use_the_session(desk: Desk, guest: Guest) -> None:
    pending = await desk.asks("bank.transfer", to="ACME", euro=20)
    page = PREVIEW % {"gateway": desk.url, "pending": pending}
    async with Site(reply(200, page.encode(), content_type="text/html")) as shop:
        ann: ConsoleVisitor = await guest(desk.url)
        ann.allowed.add(urlsplit(shop.url).netloc)
        tab = await ann.signs_in(await desk.ticket())
        await tab.goto(f"{desk.url}/approvals/{pending}")
        await expect(answer(tab, "approve")).to_be_visible()
        preview = await ann.opens(shop.url)
        await preview.wait_for_function("() => ['read', 'answer', 'blind', 'frame'].every((name) => name in tried)")
        tried = await preview.evaluate("() => tried")
        sent = [received.all("cookie") + received.all("authorization") for received in shop.requests]
        ran = desk.ran("bank.transfer")
        await press(answer(tab, "approve"))
        await expect(tab.get_by_text("Completed in")).to_be_visible()
    refused = [text for text in ann.complaints if "frame-ancestors" in text or "CORS policy" in text or BLOCKED in text]
    ann.complaints[:] = [text for text in ann.complaints if text not in refused]

    assert (tried["storage"], tried["cookie"]) == (0, "")
    assert (tried["read"], tried["answer"], tried["blind"]) == ("TypeError", "TypeError", "opaque")
    assert tried["frame"] == "closed"
    assert refused
    assert not any(sent)
    assert (len(ran), len(desk.ran("bank.transfer"))) == (0, 1)
