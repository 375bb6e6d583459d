"""Schemas from servers and files, sound and not."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from graphql import build_schema, graphql_sync, introspection_from_schema

from tests.sources.graphql.serving import NOWHERE, Canned, found, rough, source, toolbox

SDL = "type Query { a(b: Int): Int } "
STRING = {"kind": "SCALAR", "name": "String"}


def field(name: Any, kind: Any = STRING, *args: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "args": list(args)}


def never_null(kind: Any) -> dict[str, Any]:
    return {"kind": "NON_NULL", "ofType": kind}


def introspection(*fields: Any, types: Any = ()) -> dict[str, Any]:
    """What a server says of itself that has these queries."""
    query = {"kind": "OBJECT", "name": "Query", "interfaces": [], "fields": list(fields)}
    return {"data": {"__schema": {"queryType": {"name": "Query"}, "types": [query, *types]}}}


async def refusal(config: Any) -> str:
    """Why a source could not be brought in."""
    async with toolbox(config) as box:
        [state] = box.report
    assert not state.ok
    return str(state.error)


async def test_an_older_server_is_asked_simpler_questions() -> None:
    def older(asked: dict[str, Any]) -> Canned:
        if "isOneOf" in asked["query"] or "specifiedByURL" in asked["query"]:
            return Canned({"errors": [{"message": "Cannot query field 'isOneOf' on type '__Type'."}]}, 400)
        return Canned({"data": graphql_sync(build_schema(SDL), asked["query"]).data})

    async with rough("", older) as server, toolbox(source(server.address)) as box:
        assert box.registry.has("lib.a")


async def test_a_server_that_allows_no_deep_questions_is_asked_shallow_ones() -> None:
    def careful(asked: dict[str, Any]) -> Canned:
        if asked["query"].count("ofType") > 6:
            return Canned({"errors": [{"message": "too deep"}]})
        return Canned({"data": graphql_sync(build_schema(SDL), asked["query"]).data})

    async with rough("", careful) as server, toolbox(source(server.address)) as box:
        assert box.registry.has("lib.a")


@pytest.mark.parametrize("status", [200, 400, 403])
@pytest.mark.parametrize("code", ["INTROSPECTION_DISABLED", "FORBIDDEN"])
async def test_a_server_that_forbids_introspection_is_reported_with_what_to_do(status: int, code: str) -> None:
    error = {"message": "GraphQL introspection is not allowed", "extensions": {"code": code}}
    async with rough("", Canned({"errors": [error]}, status)) as server:
        told = await refusal(source(server.address))
    assert told.startswith("introspection of 'lib' ")
    assert "introspection is not allowed" in told
    assert "write its schema into options.schema_file" in told


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Canned(b"<html>Welcome</html>", media_type="text/html"), "web page"),
        (Canned(b"no such page", 404, "text/plain"), "404 Not Found: no such page"),
        (Canned({"data": {}}), "returned no schema"),
        (Canned({"data": {"__schema": "none"}}), "returned no schema"),
        (Canned({"errors": [{"message": "who?", "extensions": {"code": "UNAUTHENTICATED"}}]}), "who?"),
        (Canned({"errors": ["no"]}, 401), "Check the credential"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_tells_no_schema_is_an_error_and_not_an_empty_list(answer: Canned, told: str) -> None:
    async with rough("", answer) as server:
        assert told in await refusal(source(server.address))


async def test_a_refused_credential_is_not_tried_again_with_simpler_questions() -> None:
    refused = Canned({"errors": [{"message": "who?", "extensions": {"code": "UNAUTHENTICATED"}}]})
    async with rough("", refused) as server:
        await refusal(source(server.address))
        asked = server.asked
    assert len(asked) == 1


async def test_a_server_that_is_not_there_is_reported() -> None:
    assert "127.0.0.1:9" in await refusal(source(NOWHERE))


@pytest.mark.parametrize("connection", ["not a url", "file:///etc/passwd", "http://user:pw@127.0.0.1/graphql"])
async def test_a_connection_that_is_no_address_is_refused(connection: str) -> None:
    assert "Permission denied" in await refusal(source(connection))


@pytest.mark.parametrize("form", ["sdl", "introspection", "data"])
async def test_a_schema_in_a_file_needs_no_server(tmp_path: Path, form: str) -> None:
    told = introspection_from_schema(build_schema(SDL))
    forms: dict[str, Any] = {"sdl": SDL, "introspection": told, "data": {"data": told}}
    schema = forms[form]
    tools, problems = await found(tmp_path, schema)
    assert tools["a"].operation.query == "query a($b: Int) { a(b: $b) }"
    assert problems == []


@pytest.mark.parametrize(
    "text",
    [
        "type Query { a: Unknown }",
        "type Query {",
        "<html>",
        "[]",
        "{",
        '{"data": 1}',
        "type Query " + "{" * 9000,
        "\udcff",
    ],
    ids=lambda text: ascii(text)[:20],
)
async def test_a_file_that_is_no_schema_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "schema.graphql"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    told = await refusal(source(options={"schema_file": str(file)}))
    assert "schema.graphql" in told


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    told = await refusal(source(options={"schema_file": str(tmp_path / "none.graphql")}))
    assert "none.graphql" in told
    assert "No such file" in told


HOSTILE = ["a } evil { b", "a(x: 1)", "", "a b", "1a", "ä", "a\n#", 7, None, ["a"], "a" * 3 + "!", "__typo"]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
async def test_a_name_that_breaks_the_grammar_never_gets_into_a_query(tmp_path: Path, name: Any) -> None:
    bad_type = {"kind": "OBJECT", "name": name, "fields": [field("x")]}
    user = {"kind": "OBJECT", "name": "User", "fields": [field(name), field("id")]}
    mode = {"kind": "ENUM", "name": "Mode", "enumValues": [{"name": name}, {"name": "ON"}]}
    schema = introspection(
        field(name),
        field("good", {"kind": "OBJECT", "name": "User"}, {"name": name, "type": STRING}),
        field("needs", STRING, {"name": name, "type": never_null(STRING)}),
        field("typed", {"kind": "OBJECT", "name": name}),
        field("moded", STRING, {"name": "mode", "type": {"kind": "ENUM", "name": "Mode"}}),
        types=[bad_type, user, mode],
    )
    tools, problems = await found(tmp_path, schema)
    assert {tool.operation.query for tool in tools.values()} == {
        "query good { good { id } }",
        "query moded($mode: Mode) { moded(mode: $mode) }",
    }
    assert tools["moded"].spec.input_schema["$defs"]["Mode"]["enum"] == ["ON"]
    assert any("'Query.needs' was skipped" in problem for problem in problems)


async def test_an_operation_with_an_unknown_type_is_skipped_and_reported(tmp_path: Path) -> None:
    ghost = {"kind": "INPUT_OBJECT", "name": "Ghost"}
    maker = {"kind": "INPUT_OBJECT", "name": "Maker", "inputFields": [{"name": "by", "type": never_null(ghost)}]}
    house = {"kind": "INPUT_OBJECT", "name": "House", "inputFields": [{"name": "of", "type": never_null({**maker})}]}
    schema = introspection(
        field("fine"),
        field("lost", {"kind": "OBJECT", "name": "Nowhere"}),
        field("build", STRING, {"name": "house", "type": never_null({"kind": "INPUT_OBJECT", "name": "House"})}),
        field("maybe", STRING, {"name": "house", "type": {"kind": "INPUT_OBJECT", "name": "House"}}),
        types=[maker, house, {"kind": "WHAT", "name": "Odd"}],
    )
    tools, problems = await found(tmp_path, schema)
    assert {name: tool.operation.query for name, tool in tools.items()} == {
        "fine": "query fine { fine }",
        "maybe": "query maybe { maybe }",
    }
    told = "\n".join(problems)
    assert "'Query.lost' was skipped: its type is not known" in told
    assert "the input 'Maker' was skipped: it cannot be called without 'by'" in told
    assert "the field 'Query.build' was skipped" in told
    assert "the unknown kind 'WHAT'" in told


def wrapped(times: int) -> dict[str, Any]:
    kind: dict[str, Any] = STRING
    for _ in range(times):
        kind = {"kind": "LIST", "ofType": kind}
    return kind


@pytest.mark.parametrize(
    "bad",
    [
        field("deep", wrapped(300)),
        field("twice", never_null(never_null(STRING))),
        field("odd", "String"),
        field("odd", {"kind": ["LIST"], "ofType": STRING}),
        field("empty", {"kind": "LIST", "ofType": None}),
        {"name": "untyped"},
        "text",
        None,
    ],
    ids=lambda bad: str(bad)[:30],
)
async def test_a_field_of_an_odd_shape_harms_no_other(tmp_path: Path, bad: Any) -> None:
    tools, _ = await found(tmp_path, introspection(field("fine"), bad))
    assert list(tools) == ["fine"]


@pytest.mark.parametrize("part", ["types", "queryType", "mutationType"])
@pytest.mark.parametrize("value", [None, 7, "x", [7], {"name": "Nobody"}], ids=str)
async def test_a_schema_without_its_parts_has_no_tools_or_those_of_the_others(
    tmp_path: Path, part: str, value: Any
) -> None:
    schema = introspection(field("fine"))
    schema["data"]["__schema"][part] = value
    tools, _ = await found(tmp_path, schema)
    assert list(tools) == (["fine"] if part == "mutationType" else [])


async def test_many_problems_are_reported_in_few_lines(tmp_path: Path) -> None:
    _, problems = await found(tmp_path, introspection(*(field(f"bad {number}") for number in range(500))))
    assert len(problems) == 21
    assert "and 480 more" in problems[-1]


async def test_a_default_that_is_no_graphql_is_no_default(tmp_path: Path) -> None:
    arguments = [
        {"name": name, "type": STRING, "defaultValue": text}
        for name, text in {"json": '{"a": 1}', "deep": "[" * 5000, "huge": "1e999", "fine": '"x"', "odd": 7}.items()
    ]
    tools, _ = await found(tmp_path, introspection(field("q", STRING, *arguments)))
    properties = tools["q"].spec.input_schema["properties"]
    assert {name: inner["default"] for name, inner in properties.items() if "default" in inner} == {"fine": "x"}


PROGRAM = """
import asyncio, json, sys
sys.modules["graphql"] = None
from toolpost import ExternalToolConfig, Settings, Toolbox

async def main():
    source = ExternalToolConfig(name="lib", transport="graphql", connection="http://127.0.0.1:9/graphql")
    async with Toolbox(settings=Settings(data_dir=None, sources=[source])) as box:
        print(json.dumps(box.report[0].error))

asyncio.run(main())
"""


@pytest.mark.programs
def test_a_missing_extra_is_reported_with_its_install_line(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "pip install 'toolpost[graphql]'" in json.loads(done.stdout)
