"""Download links: an artifact without a bearer, once and within a minute."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway.serving import Served, add, served

CONTENT = b"0123456789" * 100
LARGE = 32_000_000  # bytes; more than what sockets keep


async def linked(gate: Served) -> Any:
    stored = (await gate.http.post("/api/v1/artifacts?name=a.txt", content=CONTENT)).json()
    reply = await gate.http.post(f"/api/v1/artifacts/{stored['id']}/link")
    assert reply.status_code == 201, reply.text
    return reply.json()


def local(gate: Served, url: str) -> str:
    """The link at the address of this test."""
    return f"{gate.url}/api/v1{url.partition('/api/v1')[2]}"


async def test_a_link_downloads_once_without_a_bearer(gate: Served) -> None:
    link = await linked(gate)
    async with httpx2.AsyncClient() as browser:
        first = await browser.get(local(gate, link["url"]))
        again = await browser.get(local(gate, link["url"]))

    assert (first.status_code, first.content) == (200, CONTENT)
    assert first.headers["content-disposition"] == "attachment"
    assert (again.status_code, again.json()["code"]) == (410, "link_used")


async def test_an_expired_link_is_refused(gate: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    link = await linked(gate)
    monkeypatch.setattr("toolpost.gateway.rest.downloads.time.time", lambda now=time.time: now() + 61)
    reply = await gate.http.get(local(gate, link["url"]))

    assert (reply.status_code, reply.json()["code"]) == (410, "link_used")


@pytest.mark.parametrize(
    "change", [lambda token: f"{token}0", lambda _: "", lambda token: f"a{token}"], ids=["longer", "empty", "other"]
)
async def test_a_forged_link_is_unknown(gate: Served, change: Any) -> None:
    token = (await linked(gate))["url"].partition("token=")[2]
    reply = await gate.http.get("/api/v1/downloads", params={"token": change(token)})

    assert (reply.status_code, reply.json()["code"]) == (404, "unknown_link")


async def test_downloads_are_open_requests_of_who_made_their_links(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [add], server={"concurrent_requests": 2}) as gate:
        eve, ann = await gate.key("acme:eve", "answer"), await gate.key("acme:ann", "answer")
        stored = (await gate.http.post("/api/v1/artifacts?name=a.bin", content=b"0" * LARGE)).json()

        async def link(headers: dict[str, str] | None = None) -> str:
            made = await gate.http.post(f"/api/v1/artifacts/{stored['id']}/link", headers=headers)
            return local(gate, made.json()["url"])

        urls = [await link(eve) for _ in range(3)]
        others = [await link(ann), await link()]
        async with (
            httpx2.AsyncClient(trust_env=False) as browser,
            browser.stream("GET", urls[0]) as one,
            browser.stream("GET", urls[1]) as two,
        ):
            refused = await browser.get(urls[2])
            own = await gate.http.get("/api/v1/me", headers=eve)
            opened = [(await browser.get(url)).status_code for url in others]
        async with asyncio.timeout(60), httpx2.AsyncClient(trust_env=False) as browser:
            while (later := await browser.get(urls[2])).status_code == 429:  # until the gateway has noticed
                pass

    assert (one.status_code, two.status_code, opened) == (200, 200, [200, 200])
    assert [(reply.status_code, reply.json()["code"]) for reply in (refused, own)] == [(429, "too_many_requests")] * 2
    assert later.status_code == 200


async def test_a_link_to_an_artifact_of_another_tenant_is_not_made(gate: Served) -> None:
    stored = (await gate.http.post("/api/v1/artifacts?name=a.txt", content=CONTENT)).json()
    other = await gate.key("beta:eve", "answer")
    reply = await gate.http.post(f"/api/v1/artifacts/{stored['id']}/link", headers=other)

    assert reply.status_code == 404
