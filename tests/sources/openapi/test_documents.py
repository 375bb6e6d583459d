"""Bytes of all kinds as documents, or as a message that says what they are."""

import gzip
import json
import zlib
from typing import Any

import pytest

from toolpost.contracts.errors import ConfigError
from toolpost.sources.openapi.documents import MAX_BYTES, parse_document, parse_openapi, redact_url

DOCUMENT = {"openapi": "3.0.3", "info": {"title": "Größe", "version": "1"}, "paths": {}}
JSON = json.dumps(DOCUMENT, ensure_ascii=False)
YAML = "openapi: 3.0.3\ninfo: {title: Größe, version: '1'}\npaths: {}\n"


@pytest.mark.parametrize("text", [JSON, YAML, f"\n\n  {JSON}", f"# a comment\n---\n{YAML}...\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_document_is_read_in_every_encoding(text: str, encoding: str) -> None:
    assert parse_openapi(text.encode(encoding), "doc") == (DOCUMENT, "3.0")


def test_a_gzipped_document_is_read_also_in_several_pieces() -> None:
    half = len(JSON) // 2
    pieces = gzip.compress(JSON[:half].encode()) + gzip.compress(JSON[half:].encode())

    assert parse_openapi(pieces, "doc").data == DOCUMENT


@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        ({"swagger": "2.0"}, "2.0"),
        ({"swagger": 2.0}, "2.0"),
        ({"openapi": "3.0.4"}, "3.0"),
        ({"openapi": 3.1}, "3.1"),
        ({"openapi": "3.2.0"}, "3.2"),
        ({"openapi": "3.3.0"}, "3.2"),
    ],
)
def test_the_version_is_recognised(version: dict[str, Any], dialect: str) -> None:
    assert parse_openapi(json.dumps(version).encode(), "doc").dialect == dialect


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"", "empty"),
        (b"  \n ", "empty"),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", r"a web page \(HTML\)"),
        (b'<?xml version="1.0"?><wsdl/>', "XML"),
        (b"#%RAML 1.0\ntitle: x", "RAML"),
        (b"PK\x03\x04\xff\xff", "a ZIP archive"),
        (b"\x89PNG\r\n\x1a\n\xff", "an image"),
        (b"\xff\xfa\x00\x80\xff", "not UTF-8 text"),
        (JSON.encode()[:-20], "JSON that was cut off"),
        (b'{"openapi": "3.0.0" "paths": {}}', "not valid JSON"),
        (b"a: b: c", "neither JSON nor valid YAML: line 1"),
        (b"just some words", "it contains text"),
        (b"- a\n- b", "it contains a list"),
        (b"{}", "it has none"),
        (b'{"message": "Not Found"}', r"among its keys \('message'\)"),
        (b'{"swaggerVersion": "1.2"}', "Swagger 1"),
        (b'{"asyncapi": "2.0.0"}', "AsyncAPI"),
        (b'{"utcp_version": "1.0", "tools": []}', "a UTCP manual"),
        (b'{"info": {"_postman_id": "1"}, "item": []}', "a Postman collection"),
        (b'{"openapi": "4.0.0"}', "has version '4.0.0'"),
        (gzip.compress(JSON.encode(), mtime=0)[:-10], "ends too early"),
        (b"\x1f\x8bnot gzip at all", "damaged"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_document_is_reported_for_what_it_looks_like(raw: bytes, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_openapi(raw, "doc")


def test_a_document_beyond_the_limit_is_refused_unread() -> None:
    with pytest.raises(ConfigError, match="larger than 64 MiB"):
        parse_document(b" " * (MAX_BYTES + 1), "doc")


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b" " * 2**20) for _ in range(65)) + packer.flush()

    assert len(bomb) < 300_000
    with pytest.raises(ConfigError, match="larger than 64 MiB"):
        parse_document(bomb, "doc")


def test_json_with_comments_and_trailing_commas_is_read() -> None:
    assert parse_document(b'{"a": [1, 2,], # why\n "b": "c",}', "doc") == {"a": [1, 2], "b": "c"}


def test_numbers_and_texts_that_json_cannot_hold_are_made_text() -> None:
    read = parse_document(b'{"a": 1e999, "b": NaN, "c": "\\ud83d x", "d": "\\ud83d\\ude00"}', "doc")

    assert read == {"a": "1e999", "b": "NaN", "c": "\ufffd x", "d": "\U0001f600"}


def test_an_address_is_shown_without_what_may_be_secret() -> None:
    assert redact_url("https://ann:pw@api.example/doc.json?key=s3cret#x") == "https://api.example/doc.json"
    assert redact_url("./doc.yaml") == "./doc.yaml"
    assert redact_url("http://[bad") == "the document"
