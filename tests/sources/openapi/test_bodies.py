"""A value becomes the body that its media type asks for."""

import json
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.specs import build_request
from toolpost.contracts.errors import ToolValidationError
from toolpost.sources.files import File
from toolpost.sources.openapi.models import ApiOperation, ApiResponse, FieldEncoding, Parameter, RequestBody
from toolpost.sources.openapi.requests import find_artifact_ids
from toolpost.sources.requests import PlannedRequest

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PNG = b"\x89PNG\r\n\x1a\n\0"


def operation(content_type: str, **body: Any) -> ApiOperation:
    carried = RequestBody(**{"argument": "body", "content_type": content_type, "schema": True, **body})
    return ApiOperation(tool_name="t", method="post", path="/", servers=("https://h",), body=carried)


def planned(content_type: str, value: Any, *, files: dict[str, File] | None = None, **body: Any) -> PlannedRequest:
    return build_request(operation(content_type, **body), {"body": value}, files=files)


def sent(content_type: str, value: Any, **more: Any) -> tuple[str, bytes | None]:
    request = planned(content_type, value, **more)
    return dict(request.headers).get("Content-Type", ""), request.body


def read_parts(request: PlannedRequest) -> list[tuple[dict[str, str], str, bytes]]:
    """The parts of a multipart body as a mail reader sees them: disposition, content type, bytes."""
    head = f"Content-Type: {dict(request.headers)['Content-Type']}\r\n\r\n".encode()
    message = BytesParser(policy=HTTP).parsebytes(head + (request.body or b""))
    return [_part(part) for part in message.iter_parts()]


def _part(part: Any) -> tuple[dict[str, str], str, bytes]:
    disposition = dict(part["Content-Disposition"].params)
    return disposition, str(part["Content-Type"] or ""), part.get_payload(decode=True)


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/vnd.api+json; charset=utf-8", "application/merge-patch+json"]
)
def test_json_is_sent_whole_with_its_nulls_under_the_type_of_the_document(content_type: str) -> None:
    value = {"a": [1, None, {"é": "\U0001f600"}], "b": 1e-7}
    told, body = sent(content_type, value)
    assert (told, json.loads(body or b"")) == (content_type, value)


def test_a_list_a_number_and_a_text_are_bodies_too() -> None:
    values: list[Any] = [[], 0, False, "x"]
    assert [sent("application/json", value)[1] for value in values] == [b"[]", b"0", b"false", b'"x"']


def test_a_body_that_is_not_given_is_not_sent() -> None:
    for arguments in ({}, {"body": None}):
        request = build_request(operation("application/json"), arguments)
        assert (request.body, "Content-Type" in dict(request.headers)) == (None, False)
    with pytest.raises(ToolValidationError, match="'body' is required"):
        build_request(operation("application/json", required=True), {})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "null"},
        {"type": ["object", "null"]},
        {"nullable": True},
        {"anyOf": [{"type": "object"}, {"$ref": "#/$defs/nothing"}]},
    ],
)
def test_null_is_sent_where_the_schema_says_it_may_be(schema: dict[str, Any]) -> None:
    asked = replace(operation("application/json", schema=schema), definitions={"nothing": {"type": "null"}})
    assert build_request(asked, {"body": None}).body == b"null"


def test_what_is_not_json_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in ({"a": float("nan")}, {"a": {1}}, endless):
        with pytest.raises(ToolValidationError, match="'body' cannot be sent in the body: it is not JSON"):
            planned("application/json", value)


def test_a_form_has_a_pair_for_each_field() -> None:
    value = {"a": "x y&z=é", "b": [1, 2], "c": True, "d": None, "e": {"k": [1]}, "f": ""}
    told, body = sent("application/x-www-form-urlencoded", value)
    pairs = parse_qsl((body or b"").decode(), keep_blank_values=True)
    expected = [("a", "x y&z=é"), ("b", "1"), ("b", "2"), ("c", "true"), ("e", '{"k":[1]}'), ("f", "")]
    assert (told, pairs) == ("application/x-www-form-urlencoded", expected)


@pytest.mark.parametrize(
    ("part", "value", "expected"),
    [
        (FieldEncoding(style="deepObject"), {"a": {"b": [1, 2]}}, [("f[a][b][]", "1"), ("f[a][b][]", "2")]),
        (FieldEncoding(style="deepObject"), [{"p": 1}, {"p": 2}], [("f[0][p]", "1"), ("f[1][p]", "2")]),
        (FieldEncoding(style="form", explode=False), [1, 2], [("f", "1,2")]),
        (FieldEncoding(style="pipeDelimited", explode=False), ["a", "b"], [("f", "a|b")]),
        (FieldEncoding(content_type="application/json"), [1, 2], [("f", "[1,2]")]),
    ],
)
def test_a_field_of_a_form_is_written_as_its_encoding_says(
    part: FieldEncoding, value: Any, expected: list[Any]
) -> None:
    for content_type in ("application/x-www-form-urlencoded", "multipart/form-data"):
        request = planned(content_type, {"f": value}, parts={"f": part})
        if request.body and content_type.startswith("application"):
            assert parse_qsl(request.body.decode()) == expected
        else:
            assert [(d["name"], data.decode()) for d, _, data in read_parts(request)] == expected


def test_files_come_from_base64_from_text_and_from_artifacts() -> None:
    files = {"a1": File(PNG, "image/png", "kept.png")}
    value = {
        "text": {"text": "héllo", "filename": "note.txt"},
        "data": {"base64": "iVBO\nRw0KGgoA", "filename": "x", "content_type": "image/x-own"},
        "kept": [{"artifact_id": "a1"}, {"artifact_id": "a1", "filename": "other.png"}],
        "bare": {"base64": ""},
    }
    parts = {name: FieldEncoding(is_file=True, content_type="image/jpeg" if name == "bare" else None) for name in value}
    request = planned("multipart/form-data", value, parts=parts, files=files)
    assert read_parts(request) == [
        ({"name": "text", "filename": "note.txt"}, "text/plain", "héllo".encode()),
        ({"name": "data", "filename": "x"}, "image/x-own", PNG[:-1] + b"\0"),
        ({"name": "kept", "filename": "kept.png"}, "image/png", PNG),
        ({"name": "kept", "filename": "other.png"}, "image/png", PNG),
        ({"name": "bare", "filename": "bare"}, "image/jpeg", b""),
    ]
    assert find_artifact_ids(operation("multipart/form-data", parts=parts), {"body": value}) == ["a1"]


def test_plain_fields_beside_files_have_no_type_objects_are_json_and_lists_repeat() -> None:
    value = {"n": 1.0, "o": {"a": None}, "l": ["x", "y"], "none": None, "t": "a"}
    parts = {"t": FieldEncoding(content_type="text/markdown", headers={"X-Part": "1"})}
    request = planned("multipart/form-data", value, parts=parts)
    read = [(d["name"], kind, data.decode()) for d, kind, data in read_parts(request)]
    plain = [("n", "", "1"), ("o", "application/json", '{"a":null}'), ("l", "", "x"), ("l", "", "y")]
    assert read == [*plain, ("t", "text/markdown", "a")]
    assert b"X-Part: 1\r\n" in (request.body or b"")


def test_a_name_cannot_end_its_quotes_or_its_line() -> None:
    file = {"text": "x", "filename": 'a"\r\nX: y\\ü.txt'}
    request = planned("multipart/form-data", {'f"\n': file}, parts={'f"\n': FieldEncoding(is_file=True)})
    line = 'Content-Disposition: form-data; name="f%22%0A"; filename="a%22%0D%0AX: y\\ü.txt"\r\n'
    assert line.encode() in (request.body or b"")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"f": {"base64": "###"}}, "base64 cannot be read"),
        ({"f": {"artifact_id": "gone"}}, "the artifact 'gone' does not exist for this user"),
        ({"f": {"text": "a", "base64": "b"}}, "not a file"),
        ({"f": 7}, "not a file"),
        ({"f": {"text": "a", "content_type": "nonsense"}}, "not a media type"),
        ({"f": {"text": "a", "content_type": "a/b\r\nX: 1"}}, "control character"),
        ("f", "requires an object"),
    ],
)
def test_a_file_that_is_none_is_refused_with_the_reason(value: Any, reason: str) -> None:
    with pytest.raises(ToolValidationError, match=reason):
        planned("multipart/form-data", value, parts={"f": FieldEncoding(is_file=True)})


@pytest.mark.parametrize(
    ("content_type", "value", "expected"),
    [
        ("text/plain", "plain", ("text/plain", b"plain")),
        ("text/plain", "é", ("text/plain; charset=utf-8", "é".encode())),
        ("text/plain; charset=latin-1", "é", ("text/plain; charset=latin-1", b"\xe9")),
        ("text/plain", 3.0, ("text/plain", b"3")),
        ("application/xml", "<a>é</a>", ("application/xml", "<a>é</a>".encode())),
        ("image/svg+xml", {"text": "<svg/>"}, ("image/svg+xml", b"<svg/>")),
        ("application/yaml", {"a": 1}, ("application/yaml", b'{"a":1}')),
        ("application/apply-patch+yaml", "a: 1", ("application/apply-patch+yaml", b"a: 1")),
        ("application/x-ndjson", [{"a": 1}, 2], ("application/x-ndjson", b'{"a":1}\n2\n')),
        ("application/x-ndjson", "{}\n", ("application/x-ndjson", b"{}\n")),
        ("application/json-seq", [1], ("application/json-seq", b"\x1e1\n")),
        ("application/octet-stream", {"base64": "AAH/"}, ("application/octet-stream", b"\0\x01\xff")),
        ("application/pdf", {"text": "%PDF"}, ("application/pdf", b"%PDF")),
        ("application/octet-stream", {"text": "x", "content_type": "a/b"}, ("a/b", b"x")),
        ("image/*", {"base64": "AA==", "filename": "x.png"}, ("image/png", b"\0")),
        ("*/*", {"apiVersion": "v1", "kind": "Pod"}, ("application/json", b'{"apiVersion":"v1","kind":"Pod"}')),
        ("*/*", {"base64": "AA=="}, ("application/octet-stream", b"\0")),
        ("application/x-www-form-urlencoded", "a=1", ("application/x-www-form-urlencoded", b"a=1")),
    ],
)
def test_other_types(content_type: str, value: Any, expected: tuple[str, bytes]) -> None:
    assert sent(content_type, value) == expected


@pytest.mark.parametrize(
    ("content_type", "value", "reason"),
    [
        ("text/plain", {"a": 1}, "requires a string"),
        ("application/xml", [1], "requires a string"),
        ("text/plain; charset=ascii", "é", "ascii does not have"),
        ("application/pdf", {"a": 1}, "is bytes, not object"),
        ("application/x-ndjson", {"a": 1}, "requires a list"),
        ("application/json; a=\r\nX: 1", {}, "control character"),
    ],
)
def test_a_value_that_the_type_cannot_hold_is_refused(content_type: str, value: Any, reason: str) -> None:
    with pytest.raises(ToolValidationError, match=reason):
        planned(content_type, value)


def test_json_is_welcome_first_and_anything_else_after() -> None:
    def accept(*kinds: str) -> str:
        answers = (
            ApiResponse(status="200", content=dict.fromkeys(kinds)),
            ApiResponse(status="404", content={"text/no": None}),
        )
        asked = ApiOperation(tool_name="t", method="get", path="/", servers=("https://h",), responses=answers)
        return dict(build_request(asked, {}).headers)["Accept"]

    assert accept() == "application/json, */*;q=0.9"
    assert accept("application/xml", "application/vnd.x+json", "*/*") == (
        "application/vnd.x+json, application/xml;q=0.9, */*;q=0.1"
    )
    assert accept("image/png\r\nX: 1") == "application/json, */*;q=0.9"


def test_a_caller_who_names_the_types_has_the_last_word() -> None:
    names = ("Accept", "Content-Type")
    named = [Parameter(name=name, location="header", argument=name, schema=True, style="simple") for name in names]
    asked = replace(operation("application/octet-stream"), parameters=tuple(named))
    given = {"Accept": "image/webp", "Content-Type": "application/x-tar", "body": {"text": "x"}}
    assert build_request(asked, given).headers == (("Accept", "image/webp"), ("Content-Type", "application/x-tar"))


@settings(deadline=None)
@given(TEXT, TEXT)
def test_any_text_in_a_form_is_read_as_it_was(name: str, text: str) -> None:
    _, body = sent("application/x-www-form-urlencoded", {name: text, f"{name}2": [text]})
    assert parse_qsl((body or b"").decode(), keep_blank_values=True) == [(name, text), (f"{name}2", text)]


@settings(deadline=None)
@given(st.binary())
def test_any_bytes_in_a_part_arrive_between_the_boundaries(data: bytes) -> None:
    parts, files = {"f": FieldEncoding(is_file=True)}, {"a": File(data)}
    request = planned("multipart/form-data", {"f": {"artifact_id": "a"}}, parts=parts, files=files)
    boundary = dict(request.headers)["Content-Type"].partition("boundary=")[2].encode()
    head, _, rest = (request.body or b"").partition(b"\r\n\r\n")
    assert head.startswith(b"--" + boundary + b"\r\n")
    assert rest == data + b"\r\n--" + boundary + b"--\r\n"
