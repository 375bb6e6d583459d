"""A call waits for an account; its person connects it at a real provider, and the call finishes on the page."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.async_api import expect

from tests.auth.oauth.provider import provider
from tests.browser.console.conftest import Guest
from tests.browser.console.proxy import tls_proxy
from tests.browser.console.trial_journeys import link_of
from tests.browser.console.visitor import ConsoleVisitor, answer, consents, live, menu, press
from tests.gateway.running import Gateway, running
from tests.parts import reserved_port
from tests.toolbox.signing_in import NotesApi, notes_source

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs, pytest.mark.slow]

FONTS = "fonts.googleapis.com"  # of the pages of oidc-provider
LOCAL = {
    "client_id": "local",
    "token_endpoint_auth_method": "none",
    "application_type": "native",  # so that the port of a loopback redirect may differ
    "redirect_uris": ["http://127.0.0.1/oauth/callback/notes"],
    "grant_types": ["authorization_code", "refresh_token"],
}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with provider(LOCAL) as issuer:
        yield issuer


@asynccontextmanager
async def notes(folder: Path, issuer: str, client_id: str) -> AsyncIterator[dict[str, Any]]:
    """The settings of a gateway whose only source needs an account."""
    async with NotesApi(issuer) as api:
        source = notes_source(api, folder, client_id=client_id, client_secret=None)
        yield {"builtins": [], "policy": "exploratory", "sources": [source]}


async def reads(gateway: Gateway, note: int = 7) -> str:
    """Let a program of the operator read a note; gives the ID of the pending action."""
    async with httpx2.AsyncClient(trust_env=False, headers=gateway.headers) as http:
        body = {"tool": "notes.read_note", "arguments": {"id": note}}
        asked = await http.post(f"{origin_of(gateway)}/api/v1/calls", json=body)
    assert asked.json()["status"] == "paused", asked.text
    return str(asked.json()["pending"]["id"])


def origin_of(gateway: Gateway) -> str:
    return gateway.address.removesuffix("/mcp")


async def test_a_call_that_waits_for_an_account_finishes_on_the_page(
    tmp_path: Path, service: str, guest: Guest, closing: AsyncExitStack
) -> None:
    settings = await closing.enter_async_context(notes(tmp_path, service, "local"))
    (tmp_path / "toolpost.yaml").write_text(json.dumps(settings))
    gateway = closing.enter_context(running(tmp_path))
    ann: ConsoleVisitor = await guest(origin_of(gateway))
    ann.allowed |= {urlsplit(service).netloc, FONTS}
    tab = await ann.signs_in(await link_of(gateway))
    await menu(tab, "Accounts").click()
    await expect(tab.get_by_text("not connected")).to_be_visible()
    waiting = [await reads(gateway, note) for note in (7, 8)]
    await expect(tab.get_by_role("link", name="2 calls wait for it")).to_be_visible()
    await tab.goto(f"{ann.home}/approvals/{waiting[0]}")
    async with ann.context.expect_page() as opening:
        await tab.get_by_role("button", name="Connect Notes of Ann & Co").click()
    there = await opening.value
    await expect(tab.get_by_text("Sign in at Notes of Ann & Co in the other tab.")).to_be_visible()
    await there.wait_for_url(f"{service}/**")
    await consents(there, ann.home)
    await expect(there.get_by_role("heading", name="Connected, you can close this page")).to_be_visible()
    await expect(tab.get_by_text("remember the milk").first).to_be_visible()
    await tab.goto(f"{ann.home}/approvals/{waiting[1]}")
    await expect(tab.get_by_text("remember the milk").first).to_be_visible()
    await menu(tab, "Accounts").click()
    await expect(tab.get_by_text("connected", exact=True)).to_be_visible()
    await tab.get_by_role("button", name="Disconnect").click()
    await tab.get_by_role("dialog").get_by_role("button", name="Disconnect").click()
    await expect(tab.get_by_text("not connected")).to_be_visible()


async def test_a_person_who_declines_at_the_service_can_try_again_or_refuse(
    tmp_path: Path, service: str, guest: Guest, closing: AsyncExitStack
) -> None:
    settings = await closing.enter_async_context(notes(tmp_path, service, "local"))
    (tmp_path / "toolpost.yaml").write_text(json.dumps(settings))
    gateway = closing.enter_context(running(tmp_path))
    ann: ConsoleVisitor = await guest(origin_of(gateway))
    ann.allowed |= {urlsplit(service).netloc, FONTS}
    tab = await ann.signs_in(await link_of(gateway))
    await tab.goto(f"{ann.home}/approvals/{await reads(gateway)}")
    async with ann.context.expect_page() as opening:
        await tab.get_by_role("button", name="Connect Notes of Ann & Co").click()
    there = await opening.value
    await there.wait_for_url(f"{service}/**")
    await there.get_by_role("link", name="Cancel").click()
    await expect(there.get_by_role("heading", name="Nothing was connected")).to_be_visible()
    await expect(tab.get_by_role("button", name="Connect Notes of Ann & Co")).to_be_enabled()
    await press(answer(tab, "deny"))
    await tab.get_by_role("button", name="Deny").or_(tab.get_by_role("button", name="Refuse")).first.click()
    await expect(tab.get_by_text("The caller was notified.")).to_be_visible()


async def test_a_phone_behind_tls_and_a_prefix_connects_an_account_in_its_only_tab(
    tmp_path: Path, guest: Guest, closing: AsyncExitStack
) -> None:
    with reserved_port() as port:
        pass
    public = closing.enter_context(tls_proxy(tmp_path, port, "/toolpost"))
    issuer = closing.enter_context(provider(_client_of(public)))
    settings = await closing.enter_async_context(notes(tmp_path, issuer, "public"))
    settings["server"] = {"public_url": public}
    settings["accounts"] = {"redirect_uri": f"{public}/oauth/callback"}
    (tmp_path / "toolpost.yaml").write_text(json.dumps(settings))
    gateway = closing.enter_context(running(tmp_path, "--port", str(port)))
    phone: ConsoleVisitor = await guest(public, ignore_https_errors=True, **PHONE)
    phone.allowed |= {urlsplit(issuer).netloc, urlsplit(public).netloc, FONTS}
    local = gateway._replace(address=f"http://127.0.0.1:{port}/mcp")
    link = await link_of(local)
    tab = await phone.signs_in(link)
    pending = await reads(local)
    await tab.goto(f"{public}/approvals/{pending}")
    await tab.get_by_role("button", name="Connect Notes of Ann & Co").tap()
    await tab.wait_for_url(f"{issuer}/**")
    await consents(tab, public)
    await expect(live(tab)).to_be_visible()
    await expect(tab.get_by_text("remember the milk").first).to_be_visible()

    assert link.startswith(f"{public}/#t=")
    assert tab.url.startswith(f"{public}/approvals/{pending}")


def _client_of(public: str) -> dict[str, Any]:
    return {
        **LOCAL,
        "client_id": "public",
        "application_type": "web",
        "redirect_uris": [f"{public}/oauth/callback/notes"],
    }
