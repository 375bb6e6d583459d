"""What is behind an address."""

import json
from pathlib import Path

import pytest

from tests.mcp.programs import mirror
from tests.sources.graphql.serving import library
from tests.sources.openapi.test_source import described, folder, little_shop
from tests.sources.webhook.boxes import by_path, said
from tests.wire.site import Site
from toolpost.toolbox.recognition import is_document, judge, recognise

DOCUMENT = json.dumps(described("https://example.com")).encode()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, DOCUMENT, "openapi"),
        (200, b'{"utcp_version": "1.0.0", "tools": []}', "utcp"),
        (200, b"<html></html>", "unknown"),
        (400, b'{"errors": [{"message": "GraphQL operations must contain a query"}]}', "graphql"),
        (405, b"", "mcp"),
        (401, b"", "mcp"),
        (500, b"", "unknown"),
    ],
)
def test_an_answer_speaks_for_what_gave_it(status: int, body: bytes, kind: str) -> None:
    assert judge(status, body, "there").kind == kind


async def test_real_servers_are_told_apart() -> None:
    with little_shop() as shop, mirror() as server:
        kinds = [(await recognise(url, {})).kind for url in (f"{shop}/openapi.json", server, "http://127.0.0.1:9/")]
    assert kinds == ["openapi", "mcp", "unknown"]


@pytest.mark.req("MISC-04")
async def test_graphql_utcp_and_n8n_are_told_apart_from_the_rest(tmp_path: Path) -> None:
    page = b'<html><head><meta name="n8n:config:rest-endpoint" content="cmVzdA=="></head></html>'
    manual = json.dumps({"utcp_version": "1.0.0", "manual_version": "1.0.0", "tools": []}).encode()
    (tmp_path / "utcp").write_bytes(manual)
    settings = {"data": {"versionCli": "1.123.0", "endpointWebhook": "webhook"}}
    n8n = by_path(
        settings=said(200, settings), page=said(200, b"<html>not n8n's</html>", **{"content-type": "text/html"})
    )
    with library() as books, folder(tmp_path) as files:
        assert (await recognise(books, {})).kind == "graphql"
        assert (await recognise(f"{files}/utcp", {})).kind == "utcp"
    async with Site(said(200, page, **{"content-type": "text/html"})) as shown, Site(n8n) as hidden:
        assert [(await recognise(site.url, {})).kind for site in (shown, hidden)] == ["n8n", "n8n"]


def test_a_file_may_be_a_document(tmp_path: Path) -> None:
    (tmp_path / "api.yaml").write_bytes(DOCUMENT)
    assert is_document(str(tmp_path / "api.yaml"))
    assert not is_document(str(tmp_path / "none.yaml"))
    assert not is_document("npx")
