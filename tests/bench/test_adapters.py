"""The figures of adapters, in few rounds."""

import json
from pathlib import Path

import pytest

from bench.adapters import measure_calls, measure_providers

pytestmark = pytest.mark.slow


def test_steps_with_own_tools_and_with_the_adapters_are_measured_side_by_side() -> None:
    figure = measure_calls(lambda _text: None, rounds=1)

    assert [row["name"] for row in figure.rows] == ["LangGraph", "Pydantic AI", "FastMCP"]
    assert all(row["ratio"] > 0 for row in figure.rows)


def test_the_tools_of_a_folder_are_compiled_for_every_provider(tmp_path: Path) -> None:
    parameter = {"name": "most", "in": "query", "schema": {"type": "integer"}}
    listing = {"operationId": "orders", "parameters": [parameter], "responses": {"200": {"description": "fine"}}}
    document = {"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "paths": {"/orders": {"get": listing}}}
    (tmp_path / "shop.json").write_text(json.dumps(document))

    rows = measure_providers(lambda _text: None, folder=tmp_path).rows

    assert [row["passing"] for row in rows] == [1.0] * 7
