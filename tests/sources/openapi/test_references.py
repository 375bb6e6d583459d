"""APIs that are spread over several documents."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.specs import OWN, no_network, own_api
from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolPermissionError
from toolpost.schema.schema_checks import check_schema
from toolpost.sources.openapi.loader import MAX_FETCHED, load_documents, parse_api, read_api
from toolpost.sources.openapi.models import ApiDescription
from toolpost.sources.openapi.spec import input_schema, output_schema

SITE = "https://split.example/docs/"


def assert_whole(api: ApiDescription) -> None:
    order, read, raw = api.operations

    assert [one.tool_name for one in api.operations] == ["order", "read", "get_raw"]
    assert [one.argument for one in order.parameters] == ["page"]
    assert read.parameters[0].schema == {"$ref": "#/$defs/id"}
    assert set(input_schema(order)["$defs"]) == {"Order", "Line"}
    assert set((output_schema(raw) or {})["$defs"]) == {"split_schemas", "Order", "Line"}
    for one in api.operations:
        check_schema(input_schema(one), tool_name=one.tool_name)
        check_schema(output_schema(one) or True, tool_name=one.tool_name, role="output")


async def test_files_beside_the_document_are_read_with_it() -> None:
    api = await own_api("split.yaml")

    assert api.problems == ()
    assert_whole(api)


async def test_documents_on_the_web_are_fetched_once_each() -> None:
    fetched: list[str] = []

    async def fetch(url: str) -> bytes:
        fetched.append(url)
        return (OWN / url.removeprefix(SITE)).read_bytes()

    api = await read_api(f"{SITE}split.yaml", fetch=fetch)

    assert_whole(api)
    assert fetched == [f"{SITE}{name}.yaml" for name in ("split", "split_paths", "split_schemas")]


async def test_a_document_that_cannot_be_had_is_reported_and_the_rest_works() -> None:
    async def fetch(url: str) -> bytes:
        if "schemas" in url:
            raise ToolConnectionError(f"{url} does not answer")
        return (OWN / url.removeprefix(SITE)).read_bytes()

    api = await read_api(f"{SITE}split.yaml", fetch=fetch)

    assert len(api.operations) == 3
    assert "skipped: https://split.example/docs/split_schemas.yaml does not answer" in api.problems[0]
    assert input_schema(api.operations[0])["properties"]["body"] == {}


@pytest.mark.parametrize(
    "reference", ["../secret.yaml", "/etc/passwd", "file:///etc/passwd", "link.yaml", "%2e%2e/secret.yaml"]
)
async def test_files_outside_of_the_documents_folder_are_never_read(tmp_path: Path, reference: str) -> None:
    (tmp_path / "secret.yaml").write_text("type: string\ndescription: s3cret")
    folder = tmp_path / "api"
    folder.mkdir()
    (folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    document = folder / "openapi.json"
    document.write_text(_referring(reference))

    api = await read_api(str(document), fetch=no_network, base_url="https://a.example")

    assert api.operations[0].parameters[0].schema == {}
    assert "outside the folder" in api.problems[0]


@pytest.mark.parametrize("reference", ["file:///etc/passwd", "ftp://a.example/x.yaml", "data:,{}", "gopher://x"])
async def test_a_remote_document_never_leads_to_a_file_or_a_strange_protocol(reference: str) -> None:
    asked: list[str] = []

    async def fetch(url: str) -> bytes:
        asked.append(url)
        return b"type: string"

    api = await parse_api(_referring(reference).encode(), f"{SITE}openapi.json", fetch=fetch)

    assert asked == []
    assert api.operations[0].parameters[0].schema == {}
    assert "skipped" in api.problems[0]


async def test_what_the_guard_refuses_stays_open() -> None:
    async def fetch(url: str) -> bytes:
        raise ToolPermissionError(f"Permission denied: {url}")

    api = await parse_api(_referring("http://169.254.169.254/x").encode(), f"{SITE}a.json", fetch=fetch)

    assert "Permission denied" in api.problems[0]


async def test_data_that_looks_like_a_reference_is_not_followed() -> None:
    data = {"$ref": "https://a.example/1"}
    text = _referring("#").replace('{"$ref": "#"}', json.dumps({"default": data, "enum": [data], "example": data}))

    api = await parse_api(text.encode(), f"{SITE}a.json", fetch=no_network)

    assert api.problems == ()


async def test_documents_without_end_are_not_all_read() -> None:
    count = 0

    async def fetch(url: str) -> bytes:
        nonlocal count
        count += 1
        here = f"https://a.example/{count}"
        return f"properties: {{a: {{$ref: '{here}a'}}, b: {{$ref: '{here}b'}}}}".encode()

    api = await parse_api(_referring("https://a.example/0").encode(), f"{SITE}a.json", fetch=fetch)

    left = MAX_FETCHED + 1  # each of those that were read leads to two more
    assert count == MAX_FETCHED
    assert any(
        f"{left:,} of the referenced documents" in problem and "1,000 are fetched" in problem
        for problem in api.problems
    )


@pytest.mark.parametrize("files", [499, 500, 650])
async def test_an_api_in_any_number_of_files_is_read_whole(tmp_path: Path, files: int) -> None:
    _in_files(tmp_path, files)

    api = await read_api(str(tmp_path / "openapi.json"), fetch=no_network)

    assert len(api.operations) == files
    assert [one.parameters[0].schema for one in api.operations] == [{"$ref": "#/$defs/Id"}] * files
    assert api.problems == ()


async def test_files_beyond_what_all_may_hold_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    document = _in_files(tmp_path, 20)
    room = (tmp_path / "paths/p0.json").stat().st_size * 9

    loaded = await load_documents(document.read_bytes(), document.as_uri(), no_network, limit=room)

    assert len(loaded.others) == 9
    left = "12 of the referenced documents were not read"
    assert loaded.problems == [f"{left}: their total size is limited to {room:,} bytes; bundle the API into fewer"]


@pytest.mark.parametrize("place", ["missing.yaml", "."])
async def test_a_first_document_that_cannot_be_read_is_an_error(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read: "):
        await read_api(str(tmp_path / place), fetch=no_network)


async def test_a_document_moved_as_a_whole_still_finds_its_parts(tmp_path: Path) -> None:
    for name in ("split.yaml", "split_paths.yaml", "split_schemas.yaml"):
        shutil.copy(OWN / name, tmp_path)

    assert_whole(await read_api(str(tmp_path / "split.yaml"), fetch=no_network))


def _in_files(folder: Path, count: int) -> Path:
    """An API with each of its paths in a file of its own, and one file with the schema that all of them share."""
    (folder / "paths").mkdir()
    (folder / "schemas.json").write_text('{"Id": {"type": "string"}}')
    parameter = {"name": "id", "in": "query", "schema": {"$ref": "../schemas.json#/Id"}}
    item = json.dumps({"get": {"parameters": [parameter], "responses": {"200": {"description": "x" * 500}}}})
    for number in range(count):
        (folder / f"paths/p{number}.json").write_text(item)
    paths = {f"/p{number}": {"$ref": f"paths/p{number}.json"} for number in range(count)}
    document = folder / "openapi.json"
    document.write_text(json.dumps({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": paths}))
    return document


def _referring(reference: str) -> str:
    parameter: dict[str, Any] = {"name": "p", "in": "query", "schema": {"$ref": reference}}
    return json.dumps({"openapi": "3.1.0", "paths": {"/a": {"get": {"parameters": [parameter]}}}})
