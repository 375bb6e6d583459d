"""The documents that real services publish: every operation a tool, every schema whole."""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from tests.specs import no_network, octokit, real_documents
from toolpost.auth.keys import FileCipher
from toolpost.catalog.names import model_name
from toolpost.catalog.registry import ToolRegistry
from toolpost.contracts.context import ToolContext
from toolpost.contracts.outcomes import ToolResult
from toolpost.contracts.spec import ToolSpec
from toolpost.schema.engine import compile_engine
from toolpost.sources.openapi.cache import ApiCache
from toolpost.sources.openapi.loader import read_api
from toolpost.sources.openapi.model_view import BUDGET, estimate_tokens, fit_to_budget
from toolpost.sources.openapi.models import ApiDescription
from toolpost.sources.openapi.spec import tool_spec
from toolpost.stores.encryption import CacheFolder

pytestmark = pytest.mark.slow

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
BASE_URL = "https://api.example"
DOCUMENTS = [*real_documents(), pytest.param("octokit", id="octokit_api_github_com")]
_read: dict[Path, tuple[ApiDescription, list[ToolSpec]]] = {}  # the last one only: tests come document by document


@pytest.fixture(name="path", params=DOCUMENTS, scope="module")
def _path(request: pytest.FixtureRequest) -> Path:
    given: Path | str = request.param
    return octokit() if isinstance(given, str) else given


@pytest.fixture(name="api")
async def _api(path: Path) -> ApiDescription:
    if path not in _read:
        _read.clear()
        api = await read_api(str(path), fetch=no_network, base_url=BASE_URL)
        _read[path] = api, [tool_spec(operation, source="api") for operation in api.operations]
    return _read[path][0]


@pytest.fixture(name="specs")
def _specs(path: Path, api: ApiDescription) -> list[ToolSpec]:
    return _read[path][1]


class SpecOnly:
    """A tool that is only looked at."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(success=True, result=params)


def counted(path: Path) -> int:
    """How many operations a document has, counted as plainly as can be."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    document = json.loads(text) if text.lstrip().startswith("{") else yaml.load(text, Loader=yaml.CBaseLoader)
    return sum(method in item for item in document["paths"].values() for method in METHODS)


def referred(node: Any) -> Iterator[str]:
    """Everything that is called `$ref`, wherever it stands."""
    if isinstance(node, list):
        for item in node:
            yield from referred(item)
    elif isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for item in node.values():
            yield from referred(item)


def bare(api: ApiDescription) -> ApiDescription:
    """The record without the definitions, which all operations share."""
    return replace(
        api, operations=tuple(replace(one, definitions={}, response_definitions={}) for one in api.operations)
    )


def schemas_of(specs: list[ToolSpec]) -> Iterator[dict[str, Any]]:
    for spec in specs:
        yield spec.input_schema
        if spec.output_schema is not None:
            yield spec.output_schema


@pytest.mark.req("MISC-02", "DEF-06")
def test_every_operation_is_a_tool_that_the_catalog_takes(
    path: Path, api: ApiDescription, specs: list[ToolSpec]
) -> None:
    registry = ToolRegistry()
    registry.register_many(SpecOnly(spec) for spec in specs)

    assert len(registry.list()) == len(api.operations) == counted(path)
    # A parameter without a usable name is skipped alone: its operation is still a tool.
    assert [problem for problem in api.problems if " is skipped: it is not " in problem] == []


def test_every_schema_is_closed_and_taken_by_the_fast_engine(specs: list[ToolSpec]) -> None:
    for schema in schemas_of(specs):
        known = {f"#/$defs/{name}" for name in schema.get("$defs", ())}
        assert set(referred(schema)) == known
        compile_engine(schema)


def test_every_name_is_legal(api: ApiDescription, specs: list[ToolSpec]) -> None:
    models = [model_name(spec.name) for spec in specs]

    assert len(set(models)) == len(models)
    assert [name for name in models if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)] == []
    arguments = {name for spec in specs for name in spec.input_schema["properties"]}
    assert [name for name in arguments if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name)] == []


def test_every_operation_can_be_called_somewhere_with_all_that_its_path_needs(api: ApiDescription) -> None:
    for operation in api.operations:
        assert operation.servers
        assert all(re.fullmatch(r"https?://[^{}\s]+", server) for server in operation.servers)
        given = {parameter.name for parameter in operation.parameters if parameter.location == "path"}
        assert given == set(re.findall(r"\{(.+?)\}", operation.path))


def test_the_cache_gives_back_what_it_was_given(path: Path, api: ApiDescription, tmp_path: Path) -> None:
    cache = ApiCache(CacheFolder(tmp_path, FileCipher(tmp_path / "key")))
    cache.save(b"the document", str(path), api, {})
    kept = cache.load(b"the document", str(path))

    assert kept is not None
    assert bare(kept.api) == bare(api)
    assert kept.api.operations[0].definitions == api.operations[0].definitions
    assert kept.api.operations[0].response_definitions == api.operations[0].response_definitions


def test_no_view_for_a_model_is_over_budget_or_lacks_an_argument(specs: list[ToolSpec]) -> None:
    for spec in specs:
        view = fit_to_budget(spec.input_schema)
        assert estimate_tokens(view) <= BUDGET
        assert set(view["properties"]) == set(spec.input_schema["properties"])
        assert view["required"] == spec.input_schema["required"]
