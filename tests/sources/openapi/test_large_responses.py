"""Responses of many values over HTTP: stored as JSON, or refused, without being decoded."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.patient_settings import PatientSettings
from tests.sources.graphql.serving import Canned, rough, source, toolbox
from tests.wire.site import Received, Site, reply
from toolpost import Completed, ExternalToolConfig, Failed, Toolbox

pytestmark = pytest.mark.programs
ITEMS: list[dict[str, int]] = [{}] * 150_000


async def _items(_received: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(200, json.dumps(ITEMS).encode(), content_type="application/json"))


async def _call(folder: Path, **options: Any) -> Any:
    async with Site(_items) as site:
        document: dict[str, Any] = {
            "openapi": "3.1.0",
            "info": {"title": "t", "version": "1"},
            "servers": [{"url": site.url}],
            "paths": {"/x": {"get": {"operationId": "get", "responses": {"200": {"description": "all"}}}}},
        }
        file = folder / "api.json"
        file.write_text(json.dumps(document))
        config = ExternalToolConfig.model_validate(
            {"name": "api", "transport": "http", "connection": str(file), **options}
        )
        async with Toolbox(settings=PatientSettings(data_dir=None, policy="exploratory", sources=[config])) as box:
            outcome = await box.call("api.get", {})
            ids = outcome.artifacts if isinstance(outcome, Completed) else ()
            return outcome, [await box.store.artifacts.read(one, tenant="local") for one in ids]


async def test_a_response_of_many_values_is_stored_as_it_came(tmp_path: Path) -> None:
    outcome, [data] = await _call(tmp_path, inline_values=1000)
    assert isinstance(outcome, Completed)
    assert outcome.content["media_type"] == "application/json"
    assert data == json.dumps(ITEMS).encode()  # with the spaces that a decoded one would have lost


async def test_a_response_of_too_many_values_is_refused(tmp_path: Path) -> None:
    outcome, _ = await _call(tmp_path, max_values=1000)
    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "message_too_large"


async def test_the_data_of_a_graphql_response_is_stored_alone() -> None:
    schema = "type Query { items: [Item] }\ntype Item { id: ID }"
    answer = Canned({"data": {"items": ITEMS}, "extensions": {"n": 1}})
    async with rough(schema, answer) as server, toolbox(source(server.address, inline_values=1000)) as box:
        outcome = await box.call("lib.items", {})
        assert isinstance(outcome, Completed)
        data = await box.store.artifacts.read(outcome.artifacts[0], tenant="local")
    assert json.loads(data) == ITEMS
