"""What an operation sends: the media type, the schema, and the parts of forms."""

from typing import Any

import pytest

from tests.specs import operation_of
from toolpost.sources.files import FILE
from toolpost.sources.openapi.models import FieldEncoding, RequestBody


async def body_of(content: dict[str, Any], parameters: Any = (), **rest: Any) -> RequestBody:
    operation = await operation_of(
        {"requestBody": {"description": "It.", "content": content}, "parameters": list(parameters)},
        method="post",
        **rest,
    )
    assert operation.body is not None
    return operation.body


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["application/xml", "application/json", "*/*"], "application/json"),
        (["text/plain", "application/vnd.api+json; v=1"], "application/vnd.api+json; v=1"),
        (["application/json-patch+json", "application/merge-patch+json"], "application/merge-patch+json"),
        (["application/x-www-form-urlencoded", "multipart/form-data"], "multipart/form-data"),
        (
            ["application/octet-stream", "text/plain", "application/x-www-form-urlencoded"],
            "application/x-www-form-urlencoded",
        ),
        (["image/png", "text/csv"], "text/csv"),
        (["*/*", "application/octet-stream"], "application/octet-stream"),
        (["*/*"], "*/*"),
    ],
)
async def test_the_type_that_says_most_is_chosen(offered: list[str], chosen: str) -> None:
    assert (await body_of({name: {"schema": {"type": "object"}} for name in offered})).content_type == chosen


async def test_a_body_is_one_argument_whose_name_gives_way() -> None:
    content: dict[str, Any] = {"application/json": {"schema": {}}}

    assert (await body_of(content)).argument == "body"
    assert (await body_of(content, [{"name": "body", "in": "query", "schema": {}}])).argument == "body_"


@pytest.mark.parametrize(
    ("name", "schema", "read"),
    [
        ("image/png", {"type": "string", "format": "binary"}, FILE),
        ("application/octet-stream", {}, FILE),
        ("*/*", {"type": "string", "format": "binary"}, FILE),
        ("*/*", {"type": "object"}, {"type": "object"}),
        ("text/plain", {"type": "integer"}, {"type": "integer"}),
        ("application/xml", {"type": "object", "description": "d"}, {"type": "string", "description": "d"}),
        ("application/yaml", {"type": "object"}, {"anyOf": [{"type": "object"}, {"type": "string"}]}),
        ("application/x-ndjson", {"type": "object"}, {"anyOf": [{"type": "array"}, {"type": "string"}]}),
    ],
)
async def test_a_body_is_given_in_the_form_that_its_type_can_carry(name: str, schema: Any, read: Any) -> None:
    assert (await body_of({name: {"schema": schema}})).schema == read


async def test_the_files_of_a_form_are_found_behind_references_and_compositions() -> None:
    form = {
        "allOf": [
            {"$ref": "#/components/schemas/Base"},
            {"properties": {"pages": {"type": "array", "items": {"format": "binary", "type": "string"}}}},
        ]
    }
    body = await body_of(
        {"multipart/form-data": {"schema": form}},
        components={
            "schemas": {
                "Base": {"properties": {"doc": {"$ref": "#/components/schemas/Doc"}, "n": {}}},
                "Doc": {"type": "string", "format": "binary"},
            }
        },
    )

    assert {name for name, part in body.parts.items() if part.is_file} == {"doc", "pages"}
    assert isinstance(body.schema, dict)
    _, base, own = body.schema["allOf"]
    assert base["properties"] == {"doc": FILE, "n": {}}
    assert own["properties"]["pages"]["items"] == FILE


@pytest.mark.parametrize(
    ("schema", "encoding", "is_file"),
    [
        ({"type": "string", "contentMediaType": "image/png"}, {}, True),
        ({"type": "string", "contentMediaType": "image/png", "contentEncoding": "base64"}, {}, False),
        ({}, {"contentType": "image/png, image/jpeg"}, True),
        ({"type": "string"}, {"contentType": "text/plain"}, False),
        ({"type": "object"}, {"contentType": "application/octet-stream"}, False),
        ({"type": "string", "format": "byte"}, {}, False),
    ],
)
async def test_a_field_is_a_file_where_it_holds_bytes(schema: Any, encoding: Any, is_file: bool) -> None:
    media = {"schema": {"type": "object", "properties": {"f": schema}}, "encoding": {"f": encoding}}

    assert (await body_of({"multipart/form-data": media})).parts.get("f", FieldEncoding()).is_file is is_file


async def test_the_encoding_says_how_fields_are_written() -> None:
    encoding = {
        "deep": {"style": "deepObject", "explode": True},
        "list": {"style": "pipeDelimited"},
        "meta": {
            "contentType": "application/json",
            "headers": {"X-Kind": {"schema": {"const": "meta"}}, "X-Open": {"schema": {}}},
        },
    }
    properties: dict[str, Any] = {
        "deep": {"type": "object"},
        "list": {"type": "array"},
        "meta": {},
        "plain": {"type": "string"},
    }
    body = await body_of(
        {
            "application/x-www-form-urlencoded": {
                "schema": {"type": "object", "properties": properties},
                "encoding": encoding,
            }
        }
    )

    assert body.parts == {
        "deep": FieldEncoding(style="deepObject"),
        "list": FieldEncoding(style="pipeDelimited", explode=False),
        "meta": FieldEncoding(content_type="application/json", headers={"X-Kind": "meta"}),
    }


@pytest.mark.parametrize("given", [None, 5, {}, {"content": {}}, {"content": 5}, {"$ref": "#/nowhere"}])
async def test_a_body_that_says_nothing_is_none(given: Any) -> None:
    assert (await operation_of({"requestBody": given}, method="post")).body is None


@pytest.mark.parametrize(
    ("schema", "read"),
    [
        ({"type": "string", "format": "binary"}, {"type": "object", "properties": {"file": FILE}}),
        (
            {"type": "array", "items": {"type": "string", "format": "binary"}},
            {"type": "object", "properties": {"file": FILE}},
        ),
        ({"type": "array", "items": {"type": "string"}}, {"type": "object"}),
        (None, {}),
    ],
)
async def test_a_form_without_fields_takes_any(schema: Any, read: Any) -> None:
    body = await body_of({"multipart/form-data": {} if schema is None else {"schema": schema}})

    assert body.schema == read


async def test_forms_that_are_composed_of_themselves_are_read_once() -> None:
    schemas = {
        "Form": {
            "allOf": [{"$ref": "#/components/schemas/Form"}] * 9,
            "properties": {"list": {"$ref": "#/components/schemas/List"}},
        },
        "List": {"type": "array", "items": {"$ref": "#/components/schemas/List"}},
    }
    body = await body_of(
        {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/Form"}}}, components={"schemas": schemas}
    )

    assert body.parts == {}
