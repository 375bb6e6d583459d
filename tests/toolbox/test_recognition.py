"""What is behind an address."""

import json
from pathlib import Path

import pytest

from tests.mcp.programs import mirror
from tests.sources.openapi.test_source import described, little_shop
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


def test_a_file_may_be_a_document(tmp_path: Path) -> None:
    (tmp_path / "api.yaml").write_bytes(DOCUMENT)
    assert is_document(str(tmp_path / "api.yaml"))
    assert not is_document(str(tmp_path / "none.yaml"))
    assert not is_document("npx")
