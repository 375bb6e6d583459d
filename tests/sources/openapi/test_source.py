"""REST APIs as sources, through the front door."""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.patient_settings import PatientSettings
from toolpost import ExternalToolConfig, Paused, Toolbox
from toolpost.errors import ToolAuthError, ToolPermissionError

pytestmark = pytest.mark.programs

PROGRAM = Path(__file__).with_name("little_shop.py")


@contextmanager
def little_shop() -> Iterator[str]:
    with subprocess.Popen([sys.executable, str(PROGRAM)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    with little_shop() as address:
        yield address


@contextmanager
def folder(served: Path) -> Iterator[str]:
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(served)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split("(")[1].split("/)")[0]
        finally:
            process.kill()


def described(server: str) -> dict[str, Any]:
    """A document of one operation."""
    number = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Mine", "version": "1"},
        "servers": [{"url": server}],
        "paths": {"/items/{id}": {"get": {"operationId": "look", "parameters": [number]}}},
    }


def source(connection: str, **options: Any) -> ExternalToolConfig:
    return ExternalToolConfig(name="shop", transport="http", connection=connection, **options)


def toolbox(one: ExternalToolConfig, folder: Path | None = None, policy: str = "exploratory", **more: Any) -> Any:
    return Toolbox(settings=PatientSettings(data_dir=folder, policy=policy, sources=[one], **more))


@pytest.mark.req("GEN-02")
async def test_every_operation_of_a_document_is_a_tool(shop: str) -> None:
    async with toolbox(source(f"{shop}/openapi.json")) as box:
        names = {spec.name for spec in box.registry.specs() if spec.source == "shop"}
        got = await box.call("shop.get_item", {"item_id": 1, "q": "a b&c/ü"})
        added = await box.call("shop.add_item", {"body": {"name": "ink"}})
    assert names == {f"shop.{name}" for name in ("get_item", "add_item", "delete_item", "upload", "picture", "headers")}
    assert got.content == {"id": 1, "name": "pen", "q": "a b&c/ü"}
    assert added.content["id"] >= 2


async def test_arguments_are_checked_before_anything_is_sent(shop: str) -> None:
    async with toolbox(source(f"{shop}/openapi.json")) as box:
        outcome = await box.call("shop.get_item", {"item_id": "one"})
    assert outcome.error.error_code == "validation_failed"


async def test_what_deletes_waits_for_a_person_and_what_reads_does_not(shop: str) -> None:
    async with toolbox(source(f"{shop}/openapi.json"), policy="standard") as box:
        read = await box.call("shop.get_item", {"item_id": 1})
        deleted = await box.call("shop.delete_item", {"item_id": 99})
    assert read.status == "completed"
    assert isinstance(deleted, Paused)


async def test_files_go_both_ways_as_artifacts(shop: str) -> None:
    async with toolbox(source(f"{shop}/openapi.json")) as box:
        picture = await box.call("shop.picture", {})
        [artifact] = picture.artifacts
        sent = await box.call("shop.upload", {"body": {"file": {"artifact_id": artifact, "filename": "a.png"}}})
        foreign = [
            await box.call("shop.upload", {"body": {"file": {"artifact_id": artifact}}}, user=user)
            for user in ("other:eve", "local:eve")
        ]
    assert sent.content == {"name": "a.png", "size": 2004}
    assert [one.status for one in foreign] == ["failed", "failed"]


async def test_a_local_file_is_refused_with_what_a_file_can_be(shop: str) -> None:
    async with toolbox(source(f"{shop}/openapi.json")) as box:
        refused = await box.call("shop.upload", {"body": {"file": {"path": "/tmp/a.png"}}})
        schema = box.registry.find("shop.upload").tool.spec.input_schema
    assert '$.body.file: needs one of "artifact_id", "base64", "text"' in str(refused.error)
    assert 'unexpected "path"' in str(refused.error)
    assert "a local one is read into one of these" in str(schema)


async def test_the_configured_credential_travels(shop: str) -> None:
    given = {"auth_type": "bearer", "auth_config": {"token": "tok"}, "headers": {"X-Team": "blue"}}
    async with toolbox(source(f"{shop}/openapi.json", **given)) as box:
        outcome = await box.call("shop.headers", {})
    assert (outcome.content["authorization"], outcome.content["x-team"]) == ("Bearer tok", "blue")


async def test_a_base_url_is_asked_for_its_document(shop: str) -> None:
    async with toolbox(source(f"{shop}/", utcp_mode="base_url")) as box:
        assert box.registry.has("shop.get_item")


async def test_a_base_url_without_a_document_takes_bare_requests(tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "7.json").write_text('{"name": "Ann"}')
    with folder(tmp_path) as address:
        async with toolbox(source(address, utcp_mode="base_url")) as box:
            names = sorted(spec.name for spec in box.registry.specs() if spec.source == "shop")
            read = await box.call("shop.request_get", {"path": "users/7.json", "query": {"fields": "all"}})
            above = await box.call("shop.request_get", {"path": "../secret"})
            told = list(box.problems)
    assert names == [f"shop.request_{method}" for method in ("delete", "get", "patch", "post", "put")]
    assert read.content == {"name": "Ann"}
    assert above.status == "failed"
    assert "bare requests" in told[0]


async def test_a_document_in_a_file_names_its_own_servers(shop: str, tmp_path: Path) -> None:
    (tmp_path / "api.json").write_text(json.dumps(described(shop)))
    async with toolbox(source(str(tmp_path / "api.json"))) as box:
        outcome = await box.call("shop.look", {"id": 1})
    assert outcome.content["name"] == "pen"


@pytest.mark.parametrize("elsewhere", ["http://127.0.0.1:9", "http://169.254.169.254", "http://10.0.0.1/api"])
async def test_a_remote_document_cannot_point_a_tool_at_this_machine(tmp_path: Path, elsewhere: str) -> None:
    (tmp_path / "api.json").write_text(json.dumps(described(elsewhere)))
    with folder(tmp_path) as address:
        async with toolbox(source(f"{address}/api.json")) as box:
            outcome = await box.call("shop.look", {"id": 1})
    assert isinstance(outcome.error, ToolPermissionError)
    assert outcome.error.error_code == "address_refused"
    assert str(outcome.error).startswith("Permission denied:")


async def test_a_reference_to_a_private_address_is_not_followed(tmp_path: Path) -> None:
    document = {**described("https://example.com"), "paths": {"/x": {"$ref": "http://169.254.169.254/latest"}}}
    (tmp_path / "api.json").write_text(json.dumps(document))
    async with toolbox(source(str(tmp_path / "api.json"))) as box:
        told = " ".join([*box.problems, str(box.report[0].error)])
    assert "169.254.169.254" in told


async def test_a_document_that_was_read_once_serves_without_its_server(tmp_path: Path) -> None:
    with little_shop() as address:
        async with toolbox(source(f"{address}/openapi.json"), tmp_path / "data") as box:
            before = [spec.name for spec in box.registry.specs()]
    async with toolbox(source(f"{address}/openapi.json"), tmp_path / "data") as box:
        after = [spec.name for spec in box.registry.specs()]
        await box.wait_for_sources()
        told = list(box.problems)
        outcome = await box.call("shop.get_item", {"item_id": 1})
    assert after == before
    assert "last copy" in told[0]
    assert outcome.status == "failed"


@pytest.mark.parametrize(
    "document", [b"<html>no</html>", b"", b'{"openapi": "3.1.0", "info"', b"[]", b'{"swagger": "1.2"}']
)
async def test_an_invalid_document_is_reported_by_name(tmp_path: Path, document: bytes) -> None:
    (tmp_path / "api.json").write_bytes(document)
    async with toolbox(source(str(tmp_path / "api.json"))) as box:
        [state] = box.report
    assert not state.ok
    assert "api.json" in str(state.error)


async def test_credentials_go_only_where_an_operator_wrote(shop: str, tmp_path: Path) -> None:
    (tmp_path / "api.json").write_text(json.dumps(described("https://elsewhere.example")))
    given = {"auth_type": "bearer", "auth_config": {"token": "s3cret"}}
    with folder(tmp_path) as address:
        async with toolbox(source(f"{address}/api.json", **given)) as box:
            outcome = await box.call("shop.look", {"id": 1})
    assert isinstance(outcome.error, ToolAuthError)
    assert "base_url: https://elsewhere.example" in str(outcome.error)


async def test_an_operator_says_where_the_api_is(shop: str, tmp_path: Path) -> None:
    (tmp_path / "api.json").write_text(json.dumps(described("https://elsewhere.example")))
    with folder(tmp_path) as address:
        async with toolbox(source(f"{address}/api.json", base_url=shop, headers={"X-API-Key": "k"})) as box:
            outcome = await box.call("shop.look", {"id": 1})
    assert outcome.content["name"] == "pen"


async def test_a_configured_key_makes_a_post_repeatable_under_one_key() -> None:
    seen: list[str | None] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        found = re.search(r"^Idempotency-Key: (.+?)\r$", head, re.MULTILINE | re.IGNORECASE)
        seen.append(found and found[1])
        status = "503 Busy" if len(seen) == 1 else "200 OK"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{{}}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        document = {**described(address), "paths": {"/pay": {"post": {"operationId": "pay"}}}}
        path = Path(tempfile.mkdtemp(), "pay.json")
        path.write_text(json.dumps(document))
        async with toolbox(source(str(path), options={"idempotency_header": "Idempotency-Key"})) as box:
            assert box.registry.find("shop.pay").spec.replay == "keyed"
            assert (await box.call("shop.pay", {}, idempotency_key="order-7")).status == "completed"
    assert seen[0] == seen[1]  # of the key that the caller gave, and of nobody else's like it
    assert seen[0] != "order-7"


@pytest.mark.parametrize("mode", ["strict", "report", "off", None])
async def test_a_result_that_its_document_did_not_promise_is_what_the_operator_says(
    mode: str | None, shop: str, tmp_path: Path
) -> None:
    promised = {"type": "object", "required": ["colour"]}
    document = described(shop)
    answers = {"200": {"description": "", "content": {"application/json": {"schema": promised}}}}
    document["paths"]["/items/{id}"]["get"]["responses"] = answers
    (tmp_path / "api.json").write_text(json.dumps(document))
    async with toolbox(source(str(tmp_path / "api.json"), outputs=mode)) as box:
        outcome = await box.call("shop.look", {"id": 1})
        told = [event.payload for event in await box.events() if "output_issues" in event.payload]
        counted = box.registry.get_stats().call_stats["shop.look"].schema_violations
    if mode == "strict":
        assert outcome.error.error_code == "output_invalid"
        assert "write outputs: report into source 'shop'" in str(outcome.error)
        return
    noted = mode != "off"
    assert outcome.content["id"] == 1
    assert ("output_issues" in outcome.meta, len(told), counted) == (noted, noted, noted)


async def test_the_way_to_the_next_page_is_told_of_a_large_result_too(tmp_path: Path) -> None:
    page = json.dumps({"items": ["x" * 100] * 1000, "next_cursor": "c2"}).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(page)}\r\nContent-Type: application/json\r\n\r\n"
        writer.write(head.encode() + page)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        cursor = {"name": "cursor", "in": "query", "schema": {"type": "string"}}
        paths = {"/items": {"get": {"operationId": "items", "parameters": [cursor]}}}
        (tmp_path / "api.json").write_text(json.dumps({**described(address), "paths": paths}))
        async with toolbox(source(str(tmp_path / "api.json"))) as box:
            outcome = await box.call("shop.items", {})
    assert outcome.artifacts
    assert outcome.content["note"] == 'There is more: call again with {"cursor": "c2"}.'
    assert outcome.meta["next"]["arguments"] == {"cursor": "c2"}


async def test_a_remote_document_cannot_fetch_what_merely_others_may_reach(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.mkdir()
    outer.mkdir()
    (inner / "salaries.json").write_text('{"description": "what the boss earns", "type": "string"}')
    with folder(inner) as served, folder(outer) as public:
        hidden = served.replace("127.0.0.1", "localhost")
        document = described(public)
        number = document["paths"]["/items/{id}"]["get"]["parameters"][0]
        number["schema"] = {"$ref": f"{hidden}/salaries.json"}
        (outer / "api.json").write_text(json.dumps(document))
        open_to = {"allow_hosts": [hidden.split("/")[2]]}
        settings = PatientSettings(data_dir=None, sources=[source(f"{public}/api.json")], network=open_to)
        async with Toolbox(settings=settings) as box:
            told, specs = str(box.problems), str([spec.input_schema for spec in box.registry.specs()])
    assert "A document may only point at public addresses and at the host it came from" in told
    assert "boss" not in specs


async def test_one_tool_of_a_source_may_be_held_to_its_promise(shop: str, tmp_path: Path) -> None:
    promised = {"200": {"content": {"application/json": {"schema": {"type": "object", "required": ["colour"]}}}}}
    document = described(shop)
    document["paths"]["/items/{id}"]["get"]["responses"] = promised
    (tmp_path / "api.json").write_text(json.dumps(document))
    async with toolbox(source(str(tmp_path / "api.json"), overrides={"look": {"outputs": "strict"}})) as box:
        outcome = await box.call("shop.look", {"id": 1})
    assert outcome.error.error_code == "output_invalid"
