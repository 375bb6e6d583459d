"""What is behind an address."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.sources.graphql.serving import library
from tests.sources.mcp.programs import mirror
from tests.sources.openapi.test_source import described, folder, little_shop
from tests.sources.webhook.boxes import by_path, said
from tests.wire.site import Received, Site
from toolpost.connecting import endpoint_detection
from toolpost.connecting.endpoint_detection import Endpoint, detect_file, detect_url, explain, is_document
from toolpost.sources.base import Detection, ProbeResponse, Transport, url_below
from toolpost.sources.registry import all_transports

DOCUMENT = json.dumps(described("https://example.com")).encode()


def name_of(found: Endpoint) -> str:
    return "unknown" if found.transport is None else found.transport.name


def judged(status: int, body: bytes, url: str = "https://a.example/there", **headers: str) -> str:
    response = ProbeResponse(url, url, status, headers, body)
    found = (one.name for one in all_transports() if one.detect(response) is not None)
    return next(found, "unknown")


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, DOCUMENT, "http"),
        (200, b'{"utcp_version": "1.0.0", "tools": []}', "utcp"),
        (200, b"<html></html>", "unknown"),
        (400, b'{"errors": [{"message": "GraphQL operations must contain a query"}]}', "graphql"),
        (405, b"", "unknown"),
        (405, b'{"jsonrpc": "2.0", "error": {}}', "mcp"),
        (401, b"", "unknown"),
        (500, b"", "unknown"),
    ],
)
def test_an_answer_speaks_for_what_gave_it(status: int, body: bytes, kind: str) -> None:
    assert judged(status, body) == kind


@pytest.mark.parametrize(
    ("url", "kind"),
    [("https://a.example/mcp/", "mcp"), ("https://mcp.a.example", "mcp"), ("https://a.example/hooks/pay", "unknown")],
)
def test_who_takes_no_get_is_an_mcp_server_only_if_written_as_one(url: str, kind: str) -> None:
    assert judged(405, b"", url) == kind
    assert "docs/sources/webhooks.md" in explain(ProbeResponse(url, url, 405, {}, b""))


@pytest.mark.programs
async def test_real_servers_are_distinguished() -> None:
    with little_shop() as shop, mirror() as server:
        kinds = [name_of(await detect_url(url, {})) for url in (f"{shop}/openapi.json", server, "http://127.0.0.1:9/")]
    assert kinds == ["http", "mcp", "unknown"]


@pytest.mark.programs
@pytest.mark.req("MISC-04")
async def test_graphql_utcp_and_n8n_are_distinguished_from_the_rest(tmp_path: Path) -> None:
    page = b'<html><head><meta name="n8n:config:rest-endpoint" content="cmVzdA=="></head></html>'
    manual = json.dumps({"utcp_version": "1.0.0", "manual_version": "1.0.0", "tools": []}).encode()
    (tmp_path / "utcp").write_bytes(manual)
    settings = {"data": {"versionCli": "1.123.0", "endpointWebhook": "webhook"}}
    n8n = by_path(
        settings=said(200, settings), page=said(200, b"<html>not n8n's</html>", **{"content-type": "text/html"})
    )
    with library() as books, folder(tmp_path) as files:
        assert name_of(await detect_url(books, {})) == "graphql"
        assert name_of(await detect_url(f"{files}/utcp", {})) == "utcp"
    async with Site(said(200, page, **{"content-type": "text/html"})) as shown, Site(n8n) as hidden:
        assert [name_of(await detect_url(site.url, {})) for site in (shown, hidden)] == ["webhook", "webhook"]


@pytest.mark.programs
async def test_what_is_below_an_address_is_found() -> None:
    with little_shop() as shop, mirror() as server:
        api, far = await detect_url(shop, {}), await detect_url(f"{server.removesuffix('/mcp')}?a=b", {})
    assert (name_of(api), api.because) == ("http", f"its document is at {shop}/openapi.json")
    assert name_of(far) == "mcp"
    assert [found.detection and found.detection.below for found in (api, far)] == ["", "mcp"]
    assert url_below("https://a.example/x/?key=${KEY}", "mcp") == "https://a.example/x/mcp?key=${KEY}"


async def test_who_stops_answering_is_not_known() -> None:
    async def once(received: Received, writer: asyncio.StreamWriter) -> None:
        if received.path == "/":
            writer.write(said(200, {"hello": "world"}))
            await writer.drain()
        else:
            writer.close()

    async with Site(once) as site:
        found = await detect_url(site.url, {})
    assert (name_of(found), found.tried[0]) == ("unknown", (site.url, "HTTP 200"))
    assert {answer for _, answer in found.tried[1:]} == {"connection_failed"}


@pytest.mark.parametrize(
    ("path", "challenge", "kind"),
    [
        ("/api", 'Bearer realm="x"', "unknown"),
        ("/mcp", "Bearer", "mcp"),
        ("/api", 'Bearer resource_metadata="https://a.example/.well-known/oauth-protected-resource"', "mcp"),
    ],
    ids=["any_api", "written_as_one", "metadata"],
)
async def test_a_guarded_address_is_an_mcp_server_if_it_says_so(path: str, challenge: str, kind: str) -> None:
    async with Site(said(401, {}, **{"www-authenticate": challenge})) as site:
        assert name_of(await detect_url(site.url + path, {})) == kind


@pytest.mark.parametrize(
    "challenge", ["Bearer", 'Bearer resource_metadata="https://a.example/.well-known/oauth-protected-resource"']
)
async def test_a_guarded_manual_is_not_taken_for_the_api_beside_it(challenge: str) -> None:
    guarded = said(401, {}, **{"www-authenticate": challenge})
    answers = {"utcp": guarded, "openapi.json": said(200, json.loads(DOCUMENT))}
    async with Site(by_path(**answers)) as site:
        found = await detect_url(f"{site.url}/.well-known/utcp", {})
        given = await detect_url(site.url, {})

    assert (name_of(found), name_of(given)) == ("unknown", "http")
    assert "a UTCP manual, which needs a credential (HTTP 401); give it with --header" in found.because


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.yaml", DOCUMENT.decode(), "http"),
        ("a.yml", "utcp_version: 1.0.0\ntools: []\n", "utcp"),
        ("a.gql", "schema { query: Q }\ntype Q { a: Int }\n", "is the schema of a GraphQL API"),
        ("a.json", '{"data": {"__schema": {"types": []}}}', "is the schema of a GraphQL API"),
        ("b.json", '{"servers": {"a": {"command": "a"}}}', "lists the MCP servers of another program"),
        ("c.json", "{}", "is not an OpenAPI"),
        ("none.json", None, "it cannot be read: No such file"),
        ("t.py", "from toolpost import tool\n", "python"),
    ],
)
def test_a_file_is_reported_by_what_is_in_it(tmp_path: Path, name: str, content: str | None, kind: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    found = detect_file(str(tmp_path / name))
    assert kind in (found.because if found.transport is None else found.transport.name)


def test_a_file_may_be_a_document(tmp_path: Path) -> None:
    (tmp_path / "api.yaml").write_bytes(DOCUMENT)
    assert is_document(str(tmp_path / "api.yaml"))
    assert not is_document(str(tmp_path / "none.yaml"))
    assert not is_document("npx")


def test_a_transport_that_fails_to_look_does_not_keep_the_others_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Careless(Transport):
        name = "careless"

        def detect(self, response: ProbeResponse) -> Detection | None:
            raise LookupError(response.url)

    monkeypatch.setattr(endpoint_detection, "all_transports", lambda: [Careless(), *all_transports()])
    (tmp_path / "api.yaml").write_bytes(DOCUMENT)

    assert name_of(detect_file(str(tmp_path / "api.yaml"))) == "http"
    assert "transport 'careless' failed to detect the endpoint: LookupError" in caplog.text
    assert str(tmp_path) not in caplog.text
