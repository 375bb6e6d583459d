"""The console is served as files: its page at its routes, with its own headers, to requests without a caller."""

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.gateway.serving import Served, add, listening, served
from toolpost.cli.diagnostics import check_machine
from toolpost.console import app as console_app
from toolpost.console import files
from toolpost.console.app import CONTENT_SECURITY_POLICY, ConsoleApp

INDEX = """<!doctype html><link rel="icon" href="/icon.svg"><link rel="stylesheet" href="./assets/index-4f.css">
<script type="module" crossorigin src="/assets/index-4f.js"></script><a href="//else.where/x">x</a>"""
HTML = {"Accept": "text/html,application/xhtml+xml", "Accept-Encoding": "identity"}


def built(folder: Path) -> Path:
    """A console as its build writes it."""
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(INDEX)
    (folder / "icon.svg").write_text("<svg/>")
    (folder / "assets" / "index-4f.js").write_text("let x = 1;" * 500)
    (folder / "assets" / "index-4f.css").write_text("a{}")
    (folder / "assets" / "font.woff2").write_bytes(bytes(range(256)) * 8)
    return folder


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with serving_console(ConsoleApp(built(tmp_path / "static"))) as http:
        yield http


@asynccontextmanager
async def serving_console(app: Any) -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        listening(Starlette(routes=[Mount("/", app)])) as url,
        httpx2.AsyncClient(base_url=url, trust_env=False, headers=HTML) as http,
    ):
        yield http


@asynccontextmanager
async def browser(gate: Served) -> AsyncIterator[httpx2.AsyncClient]:
    """A client without a bearer that sends what a browser sends."""
    async with httpx2.AsyncClient(base_url=gate.url, trust_env=False, headers=HTML) as http:
        yield http


@pytest.mark.parametrize(("path", "root"), [("/", "./"), ("/approvals", "./"), ("/tools/a.b%2Fc", "../")])
async def test_the_page_refers_to_its_files_relative_to_its_path(
    page: httpx2.AsyncClient, path: str, root: str
) -> None:
    reply = await page.get(path)

    assert reply.status_code == 200
    assert f'href="{root}icon.svg"' in reply.text
    assert f'href="{root}assets/index-4f.css"' in reply.text
    assert f'src="{root}assets/index-4f.js"' in reply.text
    assert 'href="//else.where/x"' in reply.text


@pytest.mark.req("WEB-01")
async def test_behind_a_path_prefix_every_page_finds_its_files(tmp_path: Path) -> None:
    """A reverse proxy removes the prefix before it forwards a request."""
    console = ConsoleApp(built(tmp_path / "static"))

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        scope = {**scope, "path": scope["path"][5:], "raw_path": scope["raw_path"][5:], "root_path": ""}
        await console(scope, receive, send)

    async with serving_console(proxy) as http:
        reply = await http.get("/team/approvals/ask_1")
        script = reply.url.join(reply.text.partition('src="')[2].partition('"')[0])
        found = await http.get(script)

    assert (script.path, found.status_code) == ("/team/assets/index-4f.js", 200)


async def test_hashed_files_never_change_and_the_page_is_always_revalidated(page: httpx2.AsyncClient) -> None:
    first, script, icon = await page.get("/"), await page.get("/assets/index-4f.js"), await page.get("/icon.svg")
    again = await page.get("/", headers={"If-None-Match": first.headers["etag"]})
    deeper = await page.get("/runs/run_1", headers={"If-None-Match": first.headers["etag"]})

    assert first.headers["cache-control"] == icon.headers["cache-control"] == "no-cache"
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert (again.status_code, again.content, deeper.status_code) == (304, b"", 200)


async def test_files_have_their_types_and_are_compressed_for_clients_that_accept_it(page: httpx2.AsyncClient) -> None:
    plain = await page.get("/assets/index-4f.js")
    async with page.stream("GET", "/assets/index-4f.js", headers={"Accept-Encoding": "br, gzip"}) as reply:
        raw = b"".join([chunk async for chunk in reply.aiter_raw()])
    refused = await page.get("/assets/index-4f.js", headers={"Accept-Encoding": "gzip;q=0"})
    font = await page.get("/assets/font.woff2", headers={"Accept-Encoding": "gzip"})

    assert plain.headers["content-type"] == "text/javascript; charset=utf-8"
    assert reply.headers["content-encoding"] == "gzip"
    assert len(raw) < len(plain.content)
    assert gzip.decompress(raw) == plain.content
    assert "content-encoding" not in refused.headers
    assert "content-encoding" not in font.headers
    assert (font.headers["content-type"], reply.headers["vary"]) == ("font/woff2", "Accept-Encoding")


def test_the_licences_are_shown_as_text() -> None:
    assert files.make_file("THIRD_PARTY_LICENSES", b"MIT").media_type == "text/plain"
    assert files.make_file("a.b/c", b"").media_type == "text/plain"


@pytest.mark.req("WEB-01")
async def test_every_response_has_the_policy_of_the_console(page: httpx2.AsyncClient) -> None:
    for path in ("/", "/assets/index-4f.js", "/icon.svg"):
        headers = (await page.get(path)).headers
        assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["permissions-policy"] == "camera=(), microphone=(), geolocation=(), payment=()"
        assert headers["x-content-type-options"] == "nosniff"


async def test_only_files_of_the_console_are_served(page: httpx2.AsyncClient, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    paths = [
        "/assets/%2e%2e%2f%2e%2e%2fsecret.txt",
        "/assets/..%2f..%2fsecret.txt",
        "/assets/none.js",
        "/a/b/c/d/e/f/g/h/i/j",
    ]
    replies = [await page.get(path) for path in paths]

    assert [reply.status_code for reply in replies] == [404] * len(paths)
    assert not [reply for reply in replies if "secret" in reply.text]


async def test_the_gateway_serves_the_console_to_browsers_and_problems_to_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = built(tmp_path / "static")
    monkeypatch.setattr(console_app, "console_folder", lambda: folder)
    async with served(tmp_path / "data", [add]) as gate, browser(gate) as http:
        routes = ["/", *(f"/{one}" for one in sorted(console_app.PAGES - {""})), "/approvals/ask_1", "/settings/keys"]
        pages = [await http.get(path) for path in routes]
        script = await http.get("/assets/index-4f.js", headers={"Accept": "*/*"})
        program = [await http.get(path, headers={"Accept": "application/json"}) for path in ("/", "/approvals")]
        closed = [await http.get(path) for path in ("/api/v1/runs", "/metrics", "/elsewhere", "/sign-in/start/x/y")]
        posted = await http.post("/approvals", json={})
        head = await http.head("/")
        foreign = await http.get("/", headers={"Host": "evil.example"})

    assert {page.status_code for page in pages} == {200}
    assert {page.headers["content-type"] for page in pages} == {"text/html; charset=utf-8"}
    assert (script.status_code, script.headers["content-security-policy"]) == (200, CONTENT_SECURITY_POLICY)
    assert [reply.status_code for reply in program] == [401, 401]
    assert [reply.status_code for reply in closed[:3]] == [401, 401, 401]
    assert (posted.status_code, head.status_code, head.content, foreign.status_code) == (401, 200, b"", 421)


@pytest.mark.req("WEB-16")
async def test_without_the_console_the_gateway_says_how_to_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_app, "console_folder", lambda: None)
    async with served(tmp_path / "data", [add]) as gate, browser(gate) as http:
        replies = [await http.get(path) for path in ("/", "/approvals/ask_1", "/assets/x.js")]

    assert {reply.status_code for reply in replies} == {404}
    for reply in replies:
        assert "The console is not in this installation" in reply.text
        assert "make console" in reply.text
        assert "toolpost up" in reply.text
        assert "script" not in reply.headers["content-security-policy"]


def test_the_doctor_says_if_the_console_is_in_this_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list[tuple[str, str]]()
    for folder in (None, built(tmp_path / "static")):
        files.console_build.cache_clear()
        monkeypatch.setattr(files, "console_folder", lambda folder=folder: folder)
        found += [(check.state, check.detail) for check in check_machine() if check.name == "console"]
    files.console_build.cache_clear()

    assert found[0] == ("note", "not in this installation; in a clone, `make console` builds it")
    assert found[1][0] == "ok"
    assert found[1][1].startswith("build ")


async def test_json_of_more_than_a_kilobyte_is_compressed_and_streams_never_are(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [add]) as gate:
        tools = await gate.http.get("/api/v1/tools", headers={"Accept-Encoding": "gzip"})
        plain = await gate.http.get("/api/v1/tools", headers={"Accept-Encoding": "identity"})
        known = await gate.http.get("/api/v1/tools", headers={"If-None-Match": tools.headers["etag"]})
        small = await gate.http.get("/api/v1/pending", headers={"Accept-Encoding": "gzip"})
        call = {"tool": "add", "arguments": {"a": 1, "b": 2}, "mode": "stream"}
        stream = await gate.http.post("/api/v1/calls", json=call, headers={"Accept-Encoding": "gzip"})
        document = await gate.http.get("/openapi.json", headers={"Accept-Encoding": "gzip"})

    assert document.headers["content-encoding"] == "gzip"
    assert document.json()["openapi"] == "3.1.0"
    assert tools.json()["items"] == plain.json()["items"]
    assert tools.headers.get("content-encoding") == ("gzip" if len(plain.content) > 1024 else None)
    assert known.status_code == 304
    assert "content-encoding" not in small.headers
    assert "content-encoding" not in stream.headers
