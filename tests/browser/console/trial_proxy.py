"""The console behind a reverse proxy with TLS that serves it below a path prefix."""

import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import pytest
import pytest_asyncio
from playwright.async_api import Request, expect

from tests.auth.oauth.provider import RESOURCE, provider
from tests.browser.console.conftest import Guest
from tests.browser.console.proxy import tls_proxy
from tests.browser.console.trial_accounts import FONTS
from tests.browser.console.trial_journeys import TOOLS, drops, link_of
from tests.browser.console.visitor import ConsoleVisitor, answer, axe, consents, live, menu, overflowing, press
from tests.gateway.running import Gateway, running
from tests.parts import reserved_port

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.programs, pytest.mark.slow]

PREFIX = "/toolpost"


class Proxied(NamedTuple):
    """A gateway on this machine, its public address, and the issuer of its people."""

    gateway: Gateway
    public: str
    issuer: str
    folder: Path


@pytest_asyncio.fixture(loop_scope="session")
async def proxied(tmp_path: Path) -> AsyncIterator[Proxied]:
    with reserved_port() as port:
        pass
    with ExitStack() as closing:
        public = closing.enter_context(tls_proxy(tmp_path, port, PREFIX))
        client = {
            "client_id": "console",
            "token_endpoint_auth_method": "none",
            "redirect_uris": [f"{public}/sign-in/callback"],
        }
        issuer = closing.enter_context(provider(client))
        oidc = {
            "issuer": issuer,
            "audience": RESOURCE,
            "tenant": "local",
            "roles_claim": "scope",
            "roles": {"tools.call": {"scopes": ["call", "answer"]}},
            "client_id": "console",
            "scopes": ["openid", "tools.call"],
        }
        settings: dict[str, Any] = {
            "builtins": [],
            "sources": [{"name": "local", "transport": "python", "connection": "./tools.py"}],
            "server": {"public_url": public, "oidc": oidc},
        }
        (tmp_path / "toolpost.yaml").write_text(json.dumps(settings))
        (tmp_path / "tools.py").write_text(TOOLS)
        gateway = closing.enter_context(running(tmp_path, "--port", str(port)))
        yield Proxied(gateway._replace(address=f"http://127.0.0.1:{port}/mcp"), public, issuer, tmp_path)


async def test_page_interface_stream_and_sign_in_work_below_a_prefix(proxied: Proxied, guest: Guest) -> None:
    ann: ConsoleVisitor = await guest(proxied.public, ignore_https_errors=True, viewport={"width": 1280, "height": 800})
    asked: list[str] = []
    ann.context.on("request", lambda request: asked.append(_path(request)))
    link = await link_of(proxied.gateway)
    tab = await ann.signs_in(link)
    await menu(tab, "Approvals").click()
    await expect(tab.get_by_text("Nothing waits for an answer.")).to_be_visible()
    await drops(proxied.gateway, "orders")
    await expect(tab.get_by_role("article", name="local.drop")).to_be_visible()
    await press(answer(tab, "approve"))
    await expect(tab.get_by_text("orders is gone")).to_be_visible()
    found = [await axe(tab), await overflowing(tab)]
    for page in ("Now", "Runs", "Tools", "Sources", "Accounts", "Insight", "Audit", "Settings"):
        await tab.get_by_role("link", name=page, exact=False).first.click()
        await ann.settles(tab)
    await tab.goto(f"{proxied.public}/tools/local.drop?tab=safety")
    await tab.reload()
    await expect(tab.get_by_role("heading", name="local.drop")).to_be_visible()

    assert link.startswith(f"{proxied.public}/#t=")
    assert found == [[], []]
    assert not [path for path in asked if not path.startswith(f"{PREFIX}/")]
    assert (proxied.folder / "dropped").read_text() == "orders\n"


async def test_people_sign_in_at_the_issuer_below_a_prefix(proxied: Proxied, guest: Guest) -> None:
    pending = await drops(proxied.gateway, "orders")
    alice: ConsoleVisitor = await guest(proxied.public, ignore_https_errors=True)
    alice.allowed |= {urlsplit(proxied.issuer).netloc, FONTS}
    tab = await alice.opens(f"/approvals/{pending}?mine=no")
    async with tab.expect_navigation():
        await tab.get_by_role("link", name="Continue with your organization").click()
    await consents(tab, proxied.public)
    await expect(live(tab)).to_be_visible()
    await press(answer(tab, "approve"))
    await expect(tab.get_by_text("orders is gone")).to_be_visible()

    assert tab.url == f"{proxied.public}/approvals/{pending}?mine=no"


async def test_a_gateway_that_stops_behind_the_proxy_is_said_and_comes_back(proxied: Proxied, guest: Guest) -> None:
    ann: ConsoleVisitor = await guest(proxied.public, ignore_https_errors=True)
    ann.expects_outage = True
    tab = await ann.signs_in(await link_of(proxied.gateway))
    proxied.gateway.process.kill()
    proxied.gateway.process.wait()
    await expect(
        tab.get_by_text("Reconnecting in").or_(tab.get_by_role("button", name="Offline")).first
    ).to_be_visible()
    port = urlsplit(proxied.gateway.address).port
    with running(proxied.folder, "--port", str(port)) as again:
        local = again._replace(address=proxied.gateway.address)
        async with httpx2.AsyncClient(trust_env=False) as http:
            alive = await http.get(f"http://127.0.0.1:{port}/healthz")
        await expect(tab.get_by_role("heading", name="Your session ended").or_(live(tab)).first).to_be_visible()
        tab = await ann.signs_in(await link_of(local))
        await expect(live(tab)).to_be_visible()

    assert alive.status_code == 200


def _path(request: Request) -> str:
    return urlsplit(request.url).path
