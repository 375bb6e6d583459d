"""People sign in to the console at an issuer: oidc-provider, which nobody here wrote, and a browser in front of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2
import pytest

from tests.auth.oauth.provider import RESOURCE, Browser, provider
from tests.gateway.serving import OPERATOR, add, drop, served, serving, whole_app
from tests.gateway.test_sessions import bearer
from toolpost import Settings, Toolbox
from toolpost.gateway.http import open_callers
from toolpost.wire.http_server import listen

pytestmark = pytest.mark.programs


@asynccontextmanager
async def gateway(folder: Path, *, secret: str | None = None, roles: Any = None) -> AsyncIterator[str]:
    """A gateway with a client at an issuer; gives its address."""
    with listen("127.0.0.1", 0) as socket:
        url = f"http://127.0.0.1:{socket.getsockname()[1]}"
        client = {
            "client_id": "console",
            "token_endpoint_auth_method": "none" if secret is None else "client_secret_basic",
            "redirect_uris": [f"{url}/sign-in/callback"],
            "application_type": "native",
            **({} if secret is None else {"client_secret": secret}),
        }
        with provider(client) as issuer:
            oidc = {
                "issuer": issuer,
                "audience": RESOURCE,
                "tenant": "acme",
                "roles_claim": "scope",
                "roles": {"tools.call": {"scopes": ["call", "answer"]}} if roles is None else roles,
                "client_id": "console",
                "client_secret": secret,
                "scopes": ["openid", "tools.call"],
            }
            settings = Settings.model_validate({"data_dir": folder, "server": {"oidc": oidc}})
            async with (
                Toolbox(tools=[add, drop], settings=settings) as box,
                open_callers(box, folder, OPERATOR, host="127.0.0.1") as callers,
                serving(whole_app(box, callers, url), socket),
            ):
                yield url


async def begin(web: httpx2.AsyncClient, url: str, to: str = "/") -> str:
    begun = await web.get(f"{url}/sign-in/start", params={"to": to})
    assert begun.status_code == 303, begun.text
    return begun.headers["location"]


async def finish(web: httpx2.AsyncClient, url: str, parameters: dict[str, str]) -> httpx2.Response:
    return await web.get(f"{url}/sign-in/callback?{urlencode(parameters)}")


@pytest.mark.parametrize("secret", [None, "a-secret-of-the-console"])
@pytest.mark.req("WEB-05")
async def test_a_person_signs_in_and_comes_back_to_the_page_with_a_ticket(tmp_path: Path, secret: str | None) -> None:
    async with gateway(tmp_path / "data", secret=secret) as url, httpx2.AsyncClient(trust_env=False) as web:
        there = await web.head(f"{url}/sign-in/start")
        asked = await begin(web, url, "/approvals/ask_7f3a?tab=2")
        returned = await Browser(f"{url}/sign-in/callback").visit(asked)
        back = await finish(web, url, returned)
        path, _, ticket = back.headers["location"].partition("#t=")
        opened = await web.post(f"{url}/api/v1/sessions/redeem", json={"ticket": ticket})
        mine = bearer(opened.json()["token"])
        paused = (
            await web.post(f"{url}/api/v1/calls", json={"tool": "drop", "arguments": {"name": "x"}}, headers=mine)
        ).json()
        answer = f"{url}/api/v1/pending/{paused['pending']['id']}/answer"
        done = await web.post(answer, json={"decision": "approve"}, headers=mine)
        again = await finish(web, url, returned)

    assert (there.status_code, back.status_code) == (200, 303)
    assert path == f"{url}/approvals/ask_7f3a?tab=2"
    assert "code_challenge_method=S256" in asked
    assert "state=" in asked
    me = opened.json()["me"]
    assert (me["user"], me["scopes"], me["caller"]["kind"]) == ("acme:alice", ["call", "answer"], "token")
    assert me["server"]["oidc"]["sign_in"] is True
    assert done.json()["content"] == "x"
    assert (again.status_code, "location" in again.headers) == (403, False)


async def test_a_callback_in_another_browser_or_with_another_state_signs_no_one_in(tmp_path: Path) -> None:
    async with gateway(tmp_path / "data") as url, httpx2.AsyncClient(trust_env=False) as web:
        returned = await Browser(f"{url}/sign-in/callback").visit(await begin(web, url))
        async with httpx2.AsyncClient(trust_env=False) as other:
            bare = await finish(other, url, returned)
            await begin(other, url)
            foreign = await finish(other, url, returned)
        forged = await finish(web, url, {**returned, "state": "x"})
        await begin(web, url)  # the cookie of the first start is gone, as after ten minutes
        late = await finish(web, url, returned)

    replies = (bare, foreign, forged, late)
    assert [one.status_code for one in replies] == [403] * 4
    assert not [one for one in replies if "location" in one.headers]
    assert "did not start the sign-in" in bare.text
    assert "start the sign-in again" in foreign.text


async def test_a_declined_sign_in_and_a_person_without_a_role_are_reported(tmp_path: Path) -> None:
    roles = {"boss": {"scopes": ["admin"]}}
    async with gateway(tmp_path / "data", roles=roles) as url, httpx2.AsyncClient(trust_env=False) as web:
        callback = f"{url}/sign-in/callback"
        declined = await finish(web, url, await Browser(callback, says_yes=False).visit(await begin(web, url)))
        nobody = await finish(web, url, await Browser(callback).visit(await begin(web, url)))

    assert (declined.status_code, nobody.status_code) == (403, 403)
    assert "declined" in declined.text
    assert "acme:alice has no role of server.oidc.roles that is for people" in nobody.text


@pytest.mark.parametrize("to", ["//evil.example", "/\\evil.example", "https://evil.example", "/a b", ""])
async def test_a_sign_in_leads_to_a_page_of_this_gateway_only(tmp_path: Path, to: str) -> None:
    async with gateway(tmp_path / "data") as url, httpx2.AsyncClient(trust_env=False) as web:
        returned = await Browser(f"{url}/sign-in/callback").visit(await begin(web, url, to))
        back = await finish(web, url, returned)

    assert urlsplit(back.headers["location"])[:3] == (*urlsplit(url)[:2], "/")


async def test_a_page_keeps_its_query_and_a_fragment_of_it_does_not_hide_the_ticket(tmp_path: Path) -> None:
    async with gateway(tmp_path / "data") as url, httpx2.AsyncClient(trust_env=False) as web:
        elsewhere = url.replace("127.0.0.1", "localhost")
        moved = await web.get(f"{elsewhere}/sign-in/start", params={"to": "/runs?tool=a%2Bb&status=failed"})
        locations = list[str]()
        for start in (moved.headers["location"], f"{url}/sign-in/start?to=/runs%23t=tpt_0_x"):
            begun = await web.get(start)
            returned = await Browser(f"{url}/sign-in/callback").visit(begun.headers["location"])
            locations.append((await finish(web, url, returned)).headers["location"])

    kept, bare = [one.partition("#t=") for one in locations]
    assert kept[0] == f"{url}/runs?tool=a%2Bb&status=failed"
    assert bare[0] == f"{url}/"
    assert "#" not in kept[2] + bare[2]


async def test_the_cookie_has_no_other_power_and_starts_are_limited(tmp_path: Path) -> None:
    async with gateway(tmp_path / "data") as url, httpx2.AsyncClient(trust_env=False) as web:
        begun = await web.get(f"{url}/sign-in/start")
        cookie = begun.headers["set-cookie"]
        refused = await web.get(f"{url}/api/v1/me")
        elsewhere = await web.get(f"{url}/sign-in/start", headers={"Host": f"localhost:{urlsplit(url).port}"})
        replies = [await web.get(f"{url}/sign-in/start") for _ in range(9)]

    assert "Path=/; Max-Age=600; HttpOnly; SameSite=Lax" in cookie
    assert refused.status_code == 401
    assert elsewhere.headers["location"] == f"{url}/sign-in/start?to=/"
    assert [one.status_code for one in replies] == [303] * 8 + [429]


async def test_without_a_client_there_is_no_such_sign_in(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [add]) as gate, httpx2.AsyncClient(trust_env=False) as web:
        replies = [await web.request(method, f"{gate.url}/sign-in/start") for method in ("HEAD", "GET")]

    assert [one.status_code for one in replies] == [204, 404]
