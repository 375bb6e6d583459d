"""Documents that were written, mangled or made to do harm."""

import copy
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.loop_calls import counted_calls
from tests.patient_settings import PatientSettings
from tests.specs import ADDRESS, OWN, api_of, no_network
from toolpost import ExternalToolConfig, Toolbox
from toolpost.contracts.errors import ConfigError
from toolpost.schema.schema_checks import CheckedDefinitions, check_schema
from toolpost.schema.shared_definitions import SharedDefinitions
from toolpost.schema.validator import compile_validator
from toolpost.sources.openapi.documents import parse_openapi
from toolpost.sources.openapi.loader import parse_api
from toolpost.sources.openapi.model_view import fit_to_budget
from toolpost.sources.openapi.spec import tool_spec

pytestmark = pytest.mark.slow

GARBAGE: list[Any] = [
    None,
    True,
    0,
    -1.5,
    "",
    "#",
    "#/",
    "x" * 60,
    [],
    {},
    [None, {}],
    {"$ref": "#/nowhere"},
    {"$ref": 5},
    {"$ref": "#/paths"},
    {"$ref": "#/components/schemas/Thing"},
    {"$id": "http://[", "$anchor": 5},
    {"allOf": [{"$ref": "#/components/schemas/Thing"}]},
    {"type": ["string", 5], "properties": {"id": {"readOnly": True}}},
]


def places(document: Any) -> Iterator[tuple[Any, Any]]:
    stack = [document]
    while stack:
        node = stack.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            yield node, key
            if isinstance(node[key], dict | list):
                stack.append(node[key])


@pytest.mark.req("MISC-02")
@pytest.mark.parametrize("name", ["shop.yaml", "shop_swagger.yaml", "future.yaml"])
async def test_a_mangled_document_gives_tools_or_an_error_that_says_why(name: str) -> None:
    whole = parse_openapi((OWN / name).read_bytes(), name).data
    for seed in range(150):
        chance = random.Random(seed)
        document = copy.deepcopy(whole)
        for node, key in chance.sample(list(places(document)), chance.randint(1, 8)):
            node[key] = chance.choice(GARBAGE)
        try:
            api = await parse_api(json.dumps(document).encode(), ADDRESS, fetch=no_network)
        except ConfigError:
            continue
        inputs = CheckedDefinitions(SharedDefinitions())
        for operation in api.operations:
            spec = tool_spec(operation, source="s")
            check_schema(spec.input_schema, tool_name=spec.name)
            check_schema(spec.input_schema, tool_name=spec.name, checked=inputs)
            check_schema(True if spec.output_schema is None else spec.output_schema, tool_name=spec.name, role="output")
            compile_validator(fit_to_budget(spec.input_schema, budget=50))


def wide(levels: int, word: str) -> dict[str, Any]:
    """Schemas that refer to the next level many times: whoever follows each way never ends."""
    inner = {f"L{n}": {word: [{"$ref": f"#/components/schemas/L{n + 1}"}] * 8} for n in range(levels)}
    return {**inner, f"L{levels}": {"properties": {"id": {"readOnly": True, "type": "string", "format": "binary"}}}}


@pytest.mark.parametrize("word", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize("media_type", ["application/json", "multipart/form-data"])
async def test_schemas_that_multiply_are_read_in_no_time(word: str, media_type: str) -> None:
    body = {"content": {media_type: {"schema": {"$ref": "#/components/schemas/L0"}}}}
    began = time.process_time()
    api = await api_of(
        {"paths": {"/a": {"post": {"requestBody": body}}}, "components": {"schemas": wide(40, word)}},
    )
    fit_to_budget(tool_spec(api.operations[0], source="s").input_schema, budget=100)

    assert time.process_time() - began < 5


async def test_a_chain_of_references_without_end_is_read() -> None:
    count = 3000
    schemas = {
        f"A{n}": {"allOf": [{"$ref": f"#/components/schemas/A{n + 1}"}], "properties": {"id": {"readOnly": True}}}
        for n in range(count)
    }
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/A0"}}}}
    api = await api_of({"paths": {"/a": {"post": {"requestBody": body}}}, "components": {"schemas": schemas}})

    assert len(api.operations[0].definitions) == count
    assert len(tool_spec(api.operations[0], source="s").input_schema["$defs"]) == count


async def test_aliases_beyond_reason_lead_nowhere() -> None:
    schemas = {f"A{n}": {"$ref": f"#/components/schemas/A{n + 1}"} for n in range(500)}
    parameter = {"name": "p", "in": "query", "schema": {"$ref": "#/components/schemas/A0"}}
    api = await api_of({"paths": {"/a": {"get": {"parameters": [parameter]}}}, "components": {"schemas": schemas}})

    assert api.operations[0].parameters[0].schema == {}
    assert "does not lead to a schema" in api.problems[0]


async def test_a_document_nested_too_deeply_is_refused() -> None:
    deep: Any = {}
    for _ in range(400):
        deep = {"properties": {"a": deep}}
    with pytest.raises(ConfigError, match="nested deeper than"):
        await api_of({"components": {"schemas": {"Deep": deep}}})


async def test_naughty_names_become_legal_ones() -> None:
    naughty = [
        "\U0001d565\U0001d556",
        "../../etc/passwd",
        "'; DROP TABLE--",
        "\u202eabc",
        "a\nb",
        "<script>",
        "null",
        "   ",
        "ツ",
        "-" * 300,
    ]
    paths = {f"/{text}": {"get": {"operationId": text, "tags": [text], "summary": text}} for text in naughty}
    api = await api_of({"paths": paths})
    names = [tool_spec(operation, source="s").name for operation in api.operations]

    assert len(set(names)) == len(naughty)
    assert all(
        name.removeprefix("s.").replace("-", "a").replace("_", "a").isalnum() and name.isascii() for name in names
    )


def entangled(tools: int) -> dict[str, Any]:
    """An API of many tools that all reach the same definitions, which refer to themselves and each other."""
    names = [f"Part{number}" for number in range(60)]
    properties = {name: {"$ref": f"#/components/schemas/{name}"} for name in names}
    schemas = {name: {"type": "object", "properties": properties} for name in names}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Part0"}}}}
    answers = {"200": {"description": "", **body}}
    paths = {f"/p{number}": {"post": {"requestBody": body, "responses": answers}} for number in range(tools)}
    servers = [{"url": "https://a.example"}]
    return {"openapi": "3.1.0", "servers": servers, "paths": paths, "components": {"schemas": schemas}}


@asynccontextmanager
async def opened(document: dict[str, Any], folder: Path) -> AsyncIterator[Toolbox]:
    path = folder / f"{len(document['paths'])}.json"
    path.write_text(json.dumps(document))
    source = ExternalToolConfig(name="api", transport="http", connection=str(path), connect_timeout_s=600)
    async with Toolbox(settings=PatientSettings(data_dir=None, sources=[source])) as box:
        yield box


async def test_definitions_that_all_tools_share_are_checked_once_for_all(tmp_path: Path) -> None:
    costs: list[float] = []
    for tools in (1, 1, 50):  # the first one pays for imports
        began = time.process_time()
        async with opened(entangled(tools), tmp_path) as box:
            assert len(box.registry.specs()) == tools
            costs.append(time.process_time() - began)

    assert costs[2] < 25 * costs[1]


def crowded(count: int) -> dict[str, Any]:
    """An API of many tools with a server each, that refers to as many files, of which there is none."""
    operations = {
        f"/p{number}": {"get": {"servers": [{"url": f"http://h{number}.example"}]}} for number in range(count)
    }
    references = {f"/f{number}": {"$ref": f"f{number}.yaml"} for number in range(count)}
    return {"openapi": "3.1.0", "paths": {**operations, **references}}


@pytest.mark.parametrize(("document", "tools"), [(entangled(50), 50), (crowded(4000), 4000)])
async def test_the_event_loop_continues_while_a_hostile_document_is_read(
    tmp_path: Path, document: dict[str, Any], tools: int
) -> None:
    async with opened(entangled(1), tmp_path), counted_calls() as calls, opened(document, tmp_path) as box:
        pass
    assert len(box.registry.specs()) == tools
    assert calls.most < 4000  # less than one a tool


async def test_skipped_parts_of_a_hostile_document_are_reported_within_limits(tmp_path: Path) -> None:
    async with opened(crowded(100), tmp_path) as box:
        told = [problem for problem in box.problems if "a referenced document is skipped" in problem]

        assert len(told) == 20
        assert "source 'api': 80 more referenced documents are skipped" in box.problems
