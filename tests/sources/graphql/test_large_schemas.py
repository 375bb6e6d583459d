"""Schemas of thousands of types, such as large code hosts have."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from graphql import build_client_schema, parse, validate

from tests.sources.graphql.large import MUTATIONS, QUERIES, large
from tests.sources.graphql.serving import found
from toolpost.schema.validator import compile_validator
from toolpost.sources.graphql.source import FieldTool


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return large()


@pytest.fixture(scope="module")
def tools(schema: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, FieldTool]:
    found_there, problems = asyncio.run(found(tmp_path_factory.mktemp("large"), schema))
    assert problems == []
    return found_there


async def test_a_schema_of_thousands_of_types_is_read_in_seconds(tmp_path: Path, schema: dict[str, Any]) -> None:
    began = time.process_time()
    tools, _ = await found(tmp_path, schema)
    spent = time.process_time() - began
    assert len(tools) == QUERIES + MUTATIONS + 1
    assert spent < 10  # it is about two; the rest is for slow and busy machines


@pytest.mark.parametrize("name", ["find0", "find33", "change7", "node"])
def test_its_queries_hold(schema: dict[str, Any], tools: dict[str, FieldTool], name: str) -> None:
    built = build_client_schema(schema, assume_valid=True)  # type: ignore[arg-type]
    assert validate(built, parse(tools[name].operation.query)) == []


def test_its_tools_are_of_a_bounded_size(tools: dict[str, FieldTool]) -> None:
    specs = [tool.spec for tool in tools.values()]
    assert max(len(tool.operation.query) for tool in tools.values()) < 10_000
    assert max(len(json.dumps(spec.input_schema)) for spec in specs) < 60_000
    assert max(len(json.dumps(spec.output_schema)) for spec in specs) < 30_000


def test_the_schemas_of_its_tools_can_be_checked_against(tools: dict[str, FieldTool]) -> None:
    spec = tools["change7"].spec
    takes = compile_validator(spec.input_schema)
    needed = spec.input_schema["$defs"]["I7"]["required"]
    assert needed == ["a0"]
    assert not takes.is_valid({"input": {}})
    assert spec.output_schema is not None
    assert compile_validator(spec.output_schema).is_valid({"id": "1", "owner": {"__typename": "T1", "id": "2"}})
