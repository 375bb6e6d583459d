"""Schemas of thousands of types, such as large code hosts have."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from graphql import build_client_schema, parse, validate

from tests.sources.graphql.large import MUTATIONS, QUERIES, large
from tests.sources.graphql.serving import found, source
from toolpost.contracts.errors import ToolTimeoutError
from toolpost.schema.validator import compile_validator
from toolpost.sources.base import Services
from toolpost.sources.graphql.source import GraphqlSource, GraphqlTool

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return large()


@pytest.fixture(scope="module")
def tools(schema: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, GraphqlTool]:
    found_there, problems = asyncio.run(found(tmp_path_factory.mktemp("large"), schema))
    assert problems == []
    return found_there


async def test_a_schema_of_thousands_of_types_is_read_in_seconds(tmp_path: Path, schema: dict[str, Any]) -> None:
    began = time.process_time()
    tools, _ = await found(tmp_path, schema)
    spent = time.process_time() - began
    assert len(tools) == QUERIES + MUTATIONS + 1
    assert spent < 60  # it is about two; a schema read once for each of its types would take far more


@pytest.mark.parametrize("name", ["find0", "find33", "change7", "node"])
def test_its_queries_hold(schema: dict[str, Any], tools: dict[str, GraphqlTool], name: str) -> None:
    built = build_client_schema(schema, assume_valid=True)  # type: ignore[arg-type]
    assert validate(built, parse(tools[name].operation.query)) == []


def test_its_tools_are_of_a_bounded_size(tools: dict[str, GraphqlTool]) -> None:
    specs = [tool.spec for tool in tools.values()]
    assert max(len(tool.operation.query) for tool in tools.values()) < 10_000
    assert max(len(json.dumps(spec.input_schema)) for spec in specs) < 60_000
    assert max(len(json.dumps(spec.output_schema)) for spec in specs) < 30_000


def test_the_schemas_of_its_tools_can_be_checked_against(tools: dict[str, GraphqlTool]) -> None:
    spec = tools["change7"].spec
    takes = compile_validator(spec.input_schema)
    needed = spec.input_schema["$defs"]["I7"]["required"]
    assert needed == ["a0"]
    assert not takes.is_valid({"input": {}})
    assert spec.output_schema is not None
    assert compile_validator(spec.output_schema).is_valid({"id": "1", "owner": {"__typename": "T1", "id": "2"}})


def told(*types: dict[str, Any]) -> dict[str, Any]:
    return {"__schema": {"queryType": {"name": "Query"}, "types": list(types), "directives": []}}


def of_kind(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "OBJECT", "name": name, "interfaces": [], "fields": list(fields)}


def field(name: str, kind: str, named: str) -> dict[str, Any]:
    return {"name": name, "args": [], "type": {"kind": kind, "name": named}}


async def test_a_long_chain_of_inputs_that_no_one_can_give_is_left_out_in_one_pass(tmp_path: Path) -> None:
    def needs(number: int) -> dict[str, Any]:
        kind = {"kind": "NON_NULL", "ofType": {"kind": "INPUT_OBJECT", "name": f"I{number + 1}"}}
        return {"kind": "INPUT_OBJECT", "name": f"I{number}", "inputFields": [{"name": "a", "type": kind}]}

    asks = {**field("asks", "SCALAR", "Int"), "args": [{"name": "i", "type": needs(-1)["inputFields"][0]["type"]}]}
    query = of_kind("Query", field("ok", "SCALAR", "Int"), asks)
    began = time.process_time()
    tools, problems = await found(tmp_path, told(query, *map(needs, range(2000))))
    assert time.process_time() - began < 60  # it is half a second; a pass for each would take minutes
    assert list(tools) == ["ok"]
    assert any("'Query.asks' was skipped: it cannot be called without 'i'" in problem for problem in problems)


async def test_many_queries_that_give_a_wide_type_are_read_in_seconds(tmp_path: Path) -> None:
    wide = of_kind("T", *(field(f"f{n}", "OBJECT", "T") for n in range(1000)), field("id", "SCALAR", "ID"))
    query = of_kind("Query", *(field(f"q{n}", "OBJECT", "T") for n in range(1000)))
    began = time.process_time()
    tools, _ = await found(tmp_path, told(wide, query), depth=8)
    assert time.process_time() - began < 60
    assert len(tools) == 1000
    assert {tool.operation.selection.count(" f") for tool in tools.values()} == {149}


async def test_operations_beyond_what_anybody_could_use_are_left_out_and_reported(tmp_path: Path) -> None:
    query = of_kind("Query", *(field(f"q{n}", "SCALAR", "Int") for n in range(5003)))
    tools, problems = await found(tmp_path, told(query))
    assert len(tools) == 5000
    assert "3 operations beyond 5,000 were skipped; choose with tool_filter" in problems[0]


async def test_a_schema_that_takes_too_long_fails_its_source_in_time(tmp_path: Path, schema: dict[str, Any]) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(schema))
    slow = GraphqlSource(source(options={"schema_file": str(file)}, connect_timeout_s=0.1), Services())
    with pytest.raises(ToolTimeoutError, match=r"schema of source 'lib' was not read within 0\.1 s; raise connect_tim"):
        await slow.discover()
    await slow.close()
