"""Every method of every path as an operation."""

from typing import Any

import pytest

from tests.specs import ADDRESS, api_of, operation_of, own_api
from toolpost.sources.openapi.models import ApiDescription, ApiOperation, SecurityRequirement


@pytest.fixture(name="shop")
async def _shop() -> ApiDescription:
    return await own_api("shop.yaml")


def named(api: ApiDescription, name: str) -> ApiOperation:
    return next(operation for operation in api.operations if operation.tool_name == name)


async def test_every_method_is_an_operation_also_without_an_operation_id(shop: ApiDescription) -> None:
    assert [(one.method, one.path, one.tool_name) for one in shop.operations] == [
        ("GET", "/things/{id}", "things_get"),
        ("PUT", "/things/{id}", "things_get_2"),
        ("HEAD", "/things/{id}", "head_things_id"),
        ("DELETE", "/things/{id}", "delete_things_id"),
        ("OPTIONS", "/", "options_root"),
        ("TRACE", "/", "trace_root"),
    ]
    assert shop.problems == ()


async def test_what_is_said_about_an_operation_is_kept(shop: ApiDescription) -> None:
    operation = named(shop, "things_get")

    assert operation.operation_id == "things/get"
    assert (operation.summary, operation.description) == ("Get a thing.", "Everything that is known about it.")
    assert operation.tags == ("things",)
    assert [one.tool_name for one in shop.operations if one.deprecated] == ["things_get_2"]


async def test_parameters_of_the_path_are_overridden_and_those_that_clash_are_renamed(shop: ApiDescription) -> None:
    parameters = {one.argument: one for one in named(shop, "things_get").parameters}

    assert list(parameters) == ["lang", "id_query", "X-Trace", "id"]
    assert parameters["lang"].required
    assert parameters["lang"].schema == {"type": "string", "enum": ["en", "no"]}
    assert (parameters["id_query"].name, parameters["id_query"].location) == ("id", "query")
    assert (parameters["id"].location, parameters["id"].required) == ("path", True)


async def test_servers_have_their_variables_filled_and_the_nearest_list_counts(shop: ApiDescription) -> None:
    assert named(shop, "things_get").servers == ("https://eu.shop.example/v2",)
    assert named(shop, "delete_things_id").servers == ("https://shop.example/admin",)


@pytest.mark.parametrize(
    ("servers", "found"),
    [
        (None, ("https://shop.example",)),
        ([], ("https://shop.example",)),
        ([{"url": "v1"}], ("https://shop.example/docs/v1",)),
        ([{"url": "//other.example/x/"}], ("https://other.example/x",)),
        ([{"url": "https://{nobody}.example"}, {"url": "http://b.example#x"}], ("http://b.example",)),
        ([{"url": "ftp://a.example"}, {"url": "http://[bad"}, {"url": 5}, "x"], ()),
    ],
)
async def test_relative_servers_are_resolved_and_unusable_ones_left_out(servers: Any, found: tuple[str, ...]) -> None:
    operation = await operation_of({}, **({} if servers is None else {"servers": servers}))

    assert operation.servers == found


async def test_an_api_from_a_file_without_a_server_says_that_it_has_none() -> None:
    api = await api_of({"paths": {"/a": {"get": {}}}}, address="file:///tmp/openapi.json")

    assert api.operations[0].servers == ()
    assert "base_url" in api.problems[0]


async def test_security_is_kept_by_the_name_of_the_scheme(shop: ApiDescription) -> None:
    key, oauth = SecurityRequirement(scheme="key"), SecurityRequirement(scheme="oauth", scopes=("write",))

    assert named(shop, "things_get").security == ((key,),)
    assert named(shop, "things_get_2").security == ()
    assert named(shop, "delete_things_id").security == ((), (key, oauth))


async def test_schemes_say_how_they_are_presented(shop: ApiDescription) -> None:
    key, oauth = shop.schemes["key"], shop.schemes["oauth"]

    assert (key.type, key.location, key.parameter) == ("apiKey", "header", "X-Key")
    assert (oauth.type, oauth.token_url) == ("oauth2", "https://shop.example/token")
    assert set(oauth.flows) == {"authorizationCode", "clientCredentials"}


async def test_answers_are_kept_by_status_and_media_type(shop: ApiDescription) -> None:
    found, problem = named(shop, "things_get").responses

    assert (found.status, found.description) == ("200", "The thing.")
    assert found.content == {"application/json": {"$ref": "#/$defs/Thing"}}
    assert problem.status == "default"
    assert list(problem.content) == ["application/problem+json"]


async def test_links_are_followed_to_what_they_say() -> None:
    link = {"operationId": "next", "parameters": {"page": "$response.body#/next"}}
    answer = {"description": "x", "links": {"next": {"$ref": "#/components/links/next"}}}
    operation = await operation_of({"responses": {"2xx": answer}}, components={"links": {"next": link}})

    assert operation.responses[0].links == {"next": link}
    assert operation.responses[0].status == "2XX"


async def test_the_newest_version_brings_new_methods_and_places() -> None:
    api = await own_api("future.yaml", base_url=None)
    query, search, copy = api.operations

    assert (query.method, query.body and query.body.schema) == (
        "QUERY",
        {"type": "object", "properties": {"text": {"type": "string"}}},
    )
    assert [(one.argument, one.location, one.required) for one in search.parameters] == [
        ("text", "query", True),
        ("limit", "query", False),
    ]
    assert (copy.method, copy.tool_name) == ("COPY", "copy")
    assert api.schemes["device"].token_url is not None


async def test_a_query_string_that_is_no_form_is_left_out_and_reported() -> None:
    whole = {"name": "q", "in": "querystring", "content": {"application/json": {"schema": {"type": "array"}}}}
    api = await api_of({"paths": {"/a": {"get": {"parameters": [whole]}}}})

    assert api.operations[0].parameters == ()
    assert "the query string 'q' is skipped" in api.problems[0]


async def test_placeholders_that_no_one_declared_are_arguments_all_the_same() -> None:
    operation = await operation_of(
        {"parameters": [{"name": "rest", "in": "path", "schema": {"type": "string"}}, {"name": "no", "in": "path"}]},
        path="/a/{id}/{+rest}#twin={x}",
    )

    assert [(one.name, one.argument, one.required) for one in operation.parameters] == [
        ("rest", "rest", True),
        ("id", "id", True),
    ]


@pytest.mark.parametrize(
    ("given", "style", "explode"),
    [
        ({"in": "query"}, "form", True),
        ({"in": "query", "style": "deepObject", "explode": True}, "deepObject", True),
        ({"in": "query", "style": "pipeDelimited"}, "pipeDelimited", False),
        ({"in": "query", "explode": False}, "form", False),
        ({"in": "header"}, "simple", False),
        ({"in": "header", "style": "form"}, "simple", False),
        ({"in": "cookie"}, "form", True),
        ({"in": "path"}, "simple", False),
        ({"in": "path", "style": "matrix", "explode": True}, "matrix", True),
    ],
)
async def test_styles_have_the_default_of_their_place(given: dict[str, Any], style: str, explode: bool) -> None:
    parameter = {"name": "p", "schema": {}, **given}
    (read,) = (
        await operation_of({"parameters": [parameter]}, path="/{p}" if given["in"] == "path" else "/")
    ).parameters

    assert (read.style, read.explode) == (style, explode)


async def test_a_parameter_may_be_a_document_of_its_own() -> None:
    content = {"text/plain": {}, "application/json": {"schema": {"type": "object"}}}
    (read,) = (await operation_of({"parameters": [{"name": "q", "in": "query", "content": content}]})).parameters

    assert (read.content_type, read.schema) == ("application/json", {"type": "object"})


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("filter[name]", "filter_name"),
        ("$top", "top"),
        ("expand[]", "expand"),
        ("a.b-c_", "a.b-c_"),
        ("é", "parameter"),
    ],
)
async def test_arguments_have_names_that_every_model_takes(name: str, argument: str) -> None:
    (read,) = (await operation_of({"parameters": [{"name": name, "in": "query", "schema": {}}]})).parameters

    assert (read.name, read.argument) == (name, argument)


async def test_names_that_collide_are_numbered_in_the_order_of_the_document() -> None:
    paths = {f"/{n}": {"get": {"operationId": name}} for n, name in enumerate(["a/b", "a.b", "a_b_2", "a b", "a_b"])}
    api = await api_of({"paths": paths})

    assert [one.tool_name for one in api.operations] == ["a_b", "a_b_2", "a_b_2_2", "a_b_3", "a_b_4"]


async def test_a_broken_operation_is_set_aside_and_the_rest_works() -> None:
    paths: dict[str, Any] = {
        "/text": {"get": "nothing", "post": {"operationId": "fine"}},
        "/nowhere": {"$ref": "#/components/pathItems/none"},
        "/list": [],
        "/odd": {"get": {"parameters": [{"$ref": "#/x"}, 5, {"in": "query"}], "responses": {"200": 5}, "tags": 3}},
        "x-note": {"get": {}},
    }
    api = await api_of({"paths": paths})

    assert [one.tool_name for one in api.operations] == ["fine", "get_odd"]
    assert api.operations[1].parameters == ()
    assert [problem.partition(":")[0] for problem in api.problems] == [
        "GET /text is skipped",
        "path '/nowhere' is skipped",
        "path '/list' is skipped",
        "GET /odd",
        "GET /odd",
    ]


@pytest.mark.parametrize("dialect", [{"openapi": "3.1.0"}, {"swagger": "2.0"}], ids=["openapi", "swagger"])
async def test_a_parameter_that_can_be_nowhere_is_reported(dialect: dict[str, str]) -> None:
    parameters: list[Any] = [{"name": "x", "in": "qurey"}, {"name": "y"}, {"in": "query"}, {"name": 5, "in": "query"}]
    api = await api_of({**dialect, "paths": {"/bad": {"get": {"parameters": parameters}}}})
    places = "query, path, header, cookie" if "openapi" in dialect else "query, path, header, formData, body"

    assert api.operations[0].parameters == ()
    assert api.problems == (
        f"GET /bad: parameter 'x' is in 'qurey', which is not a location ({places})",
        f"GET /bad: parameter 'y' has no `in` ({places})",
        "GET /bad: a parameter is skipped: it has no name",
        "GET /bad: a parameter is skipped: its name is not a string",
    )


async def test_a_header_that_cannot_be_named_is_left_out() -> None:
    parameters: list[Any] = [{"name": name, "in": "header"} for name in ("X-Fine", "two words", " ", "a:b")]
    api = await api_of({"paths": {"/a": {"get": {"parameters": parameters}}}})

    assert [one.name for one in api.operations[0].parameters] == ["X-Fine"]
    assert len(api.problems) == 3


async def test_a_document_without_paths_has_no_operations() -> None:
    assert (
        await api_of({"paths": None, "info": "x", "webhooks": {"a": {"post": {}}}}, address=ADDRESS)
    ).operations == ()


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"type": "http", "scheme": "Bearer"}, {"type": "http", "scheme": "bearer"}),
        (
            {"type": "apiKey", "in": "cookie", "name": "sid"},
            {"type": "apiKey", "location": "cookie", "parameter": "sid"},
        ),
        ({"type": "mutualTLS"}, {"type": "mutualTLS"}),
        ({"type": "openIdConnect", "openIdConnectUrl": "/x"}, {"flows": {"openIdConnectUrl": "/x"}}),
        ({"type": "oauth2", "flows": {"implicit": {"tokenUrl": "http://["}}}, {"token_url": None}),
        ({"type": "oauth2"}, {"flows": {}, "token_url": None}),
    ],
)
async def test_each_kind_of_scheme_is_understood(declared: Any, told: dict[str, Any]) -> None:
    scheme = (await api_of({"components": {"securitySchemes": {"s": declared}}})).schemes["s"]

    assert {name: getattr(scheme, name) for name in told} == told


@pytest.mark.parametrize(
    "declared", [5, {}, {"type": "apiKey", "in": "body", "name": "x"}, {"type": "magic"}, {"$ref": "#/no"}]
)
async def test_a_scheme_that_makes_no_sense_is_none(declared: Any) -> None:
    assert (await api_of({"components": {"securitySchemes": {"s": declared}}})).schemes == {}
