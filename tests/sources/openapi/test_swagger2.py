"""Swagger 2 as if it were OpenAPI 3."""

import pytest

from tests.specs import api_of, build_request, own_api
from toolpost.sources.files import FILE
from toolpost.sources.openapi.models import ApiDescription, ApiOperation, FieldEncoding


@pytest.fixture(name="shop")
async def _shop() -> ApiDescription:
    return await own_api("shop_swagger.yaml", base_url=None)


def named(api: ApiDescription, name: str) -> ApiOperation:
    return next(operation for operation in api.operations if operation.tool_name == name)


async def test_host_base_path_and_schemes_make_the_servers_the_safest_first(shop: ApiDescription) -> None:
    assert named(shop, "list").servers == ("https://api.shop.example/v1", "http://api.shop.example/v1")
    assert named(shop, "create").servers == ("http://api.shop.example/v1",)


async def test_without_a_host_the_document_says_where_the_api_is() -> None:
    api = await api_of({"swagger": "2.0", "basePath": "/v2", "paths": {"/a": {"get": {}}}})

    assert api.operations[0].servers == ("https://shop.example/v2",)


async def test_collection_formats_become_styles(shop: ApiDescription) -> None:
    written = {one.name: (one.style, one.explode) for one in named(shop, "list").parameters}

    assert written == {
        "page": ("form", True),
        "ids": ("form", False),
        "tags": ("form", True),
        "sizes": ("pipeDelimited", False),
        "X-Ids": ("simple", False),
    }


async def test_the_words_of_a_parameter_become_its_schema(shop: ApiDescription) -> None:
    page = named(shop, "list").parameters[0]

    assert page.schema == {"type": "integer", "exclusiveMinimum": 0, "default": 1}


async def test_a_body_parameter_becomes_the_body_also_by_reference(shop: ApiDescription) -> None:
    body = named(shop, "create").body

    assert body is not None
    assert (body.content_type, body.required, body.schema) == ("application/json", True, {"$ref": "#/$defs/Thing"})
    assert named(shop, "create").definitions["Thing"] == {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "price": {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]},
            "kind": {"type": "string", "discriminator": {"propertyName": "kind"}},
        },
    }


async def test_form_fields_with_a_file_become_a_multipart_body(shop: ApiDescription) -> None:
    body = named(shop, "upload").body

    assert body is not None
    assert body.content_type == "multipart/form-data"
    assert isinstance(body.schema, dict)
    assert body.schema["required"] == ["photo"]
    assert body.schema["properties"]["photo"] == {**FILE, "description": f"The picture.\n{FILE['description']}"}
    assert body.parts == {"photo": FieldEncoding(is_file=True)}


async def test_form_fields_without_one_become_a_form(shop: ApiDescription) -> None:
    body = named(shop, "login").body

    assert body is not None
    assert (body.content_type, body.required) == ("application/x-www-form-urlencoded", True)
    assert body.parts == {"scopes": FieldEncoding(explode=False)}


async def test_answers_have_the_types_that_are_produced(shop: ApiDescription) -> None:
    assert list(named(shop, "list").responses[0].content) == ["application/json", "text/csv"]
    assert named(shop, "create").responses[0].content["application/json"] == {"$ref": "#/$defs/Thing"}
    assert named(shop, "download").responses[0].content == {"image/png": {"type": "string", "format": "binary"}}
    assert named(shop, "upload").responses[0].content == {}


async def test_security_definitions_become_schemes(shop: ApiDescription) -> None:
    login, app = shop.schemes["login"], shop.schemes["app"]

    assert (login.type, login.scheme) == ("http", "basic")
    assert (app.type, app.token_url, list(app.flows)) == (
        "oauth2",
        "https://id.shop.example/token",
        ["clientCredentials"],
    )


async def test_lists_within_lists_are_joined_by_the_format_of_their_own_level() -> None:
    pairs = {"type": "array", "collectionFormat": "pipes", "items": {"type": "integer"}}
    connections = {"name": "connections", "in": "query", "type": "array", "items": pairs}
    api = await api_of(
        {"swagger": "2.0", "host": "a.example", "paths": {"/route": {"get": {"parameters": [connections]}}}}
    )

    request = build_request(api.operations[0], {"connections": [[-5, 9309], [-5, 31]]})

    assert request.query == (("connections", "-5%7C9309,-5%7C31"),)


async def test_paths_that_differ_by_their_query_alone_are_tools_of_their_own() -> None:
    comp = {"name": "comp", "in": "query", "required": True, "type": "string", "enum": ["acl"]}
    item = {"get": {"operationId": "get_acl", "parameters": [comp, {"name": "top", "in": "query", "type": "integer"}]}}
    api = await api_of({"swagger": "2.0", "host": "a.example", "x-ms-paths": {"/{box}?comp=acl": item}})

    request = build_request(api.operations[0], {"box": "b", "top": 3})

    assert api.operations[0].tool_name == "get_acl"
    assert request.url == "https://a.example/b?comp=acl&top=3"
