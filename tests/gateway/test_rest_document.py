"""The OpenAPI document of the gateway, as other programs read it: our own OpenAPI source first of all."""

from pathlib import Path

from tests.gateway.serving import add, served
from toolpost import Completed, Toolbox
from toolpost.gateway.rest.openapi import OPERATIONS, openapi_document


def test_every_operation_has_a_name_a_summary_and_documented_answers() -> None:
    document = openapi_document(OPERATIONS, server="http://127.0.0.1:7300")
    described = [one for methods in document["paths"].values() for one in methods.values()]

    assert len({one["operationId"] for one in described}) == len(OPERATIONS) == len(described)
    assert all({"401", "403", "429"} <= one["responses"].keys() for one in described)


async def test_the_gateway_is_a_source_of_another_by_its_own_document(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [add]) as gate:
        source = {
            "name": "gate",
            "transport": "http",
            "connection": f"{gate.url}/openapi.json",
            "auth_type": "bearer",
            "auth_config": {"token": gate.http.headers["Authorization"].removeprefix("Bearer ")},
            "trust": True,
        }
        settings = {"data_dir": None, "policy": "exploratory", "sources": [source]}
        async with Toolbox(settings=settings) as box:
            listed = await box.call("gate.list_tools", {"limit": 1})
            called = await box.call("gate.call", {"body": {"tool": "add", "arguments": {"a": 2, "b": 3}}})
            problems = [*box.problems]
            names = {spec.name for spec in box.registry.specs()}

    assert problems == []
    assert {f"gate.{operation.id}" for operation in OPERATIONS} <= names
    assert isinstance(listed, Completed), listed
    assert isinstance(called, Completed), called
    assert called.content["content"] == 5
