"""What a call would send or run, as data on its card, with the arguments filled in and secrets masked."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from conformance.fixture import serving_fixture
from tests.gateway.serving import Served, listening, served
from tests.gateway.test_pending_cards import asked, card_for
from toolpost import Paused, Settings, Toolbox, tool
from toolpost.contracts.questions import CallPreview

ASK = [{"action": "ask"}]
PET = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/pets/{id}": {
            "post": {
                "operationId": "rename",
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"name": "dry", "in": "query", "schema": {"type": "boolean"}},
                    {"name": "X-Api-Token", "in": "header", "schema": {"type": "string"}},
                ],
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "properties": {"name": {"type": "string"}, "password": {"type": "string"}},
                            }
                        }
                    },
                },
                "responses": {"200": {"description": "OK"}},
            }
        }
    },
}


@tool(side_effects="write", preview=None)
async def plain(name: str) -> str:
    """Do something."""
    return name


async def preview_rows(_params: dict[str, Any], _context: Any) -> CallPreview:
    return CallPreview(True, "it deletes rows", data={"kind": "table", "columns": ["id"], "rows": [[1]], "total": 1204})


@tool(side_effects="write", preview=preview_rows)
async def prune(table: str) -> str:
    """Delete rows."""
    return table


@pytest.fixture
async def api() -> AsyncIterator[str]:
    async def document(request: Any) -> JSONResponse:
        return JSONResponse({**PET, "servers": [{"url": f"http://{request.headers['host']}"}]})

    async with listening(Starlette(routes=[Route("/openapi.json", document)])) as url:
        yield url


async def only_card(gate: Served, tool_name: str, **arguments: Any) -> dict[str, Any]:
    headers = dict(gate.http.headers)
    return await card_for(gate, await asked(gate, tool_name, headers, **arguments), headers)


@pytest.mark.req("WEB-09")
async def test_a_request_of_an_api_is_shown_with_its_arguments_and_without_secrets(tmp_path: Path, api: str) -> None:
    source = {"name": "pets", "transport": "http", "connection": f"{api}/openapi.json", "required": True}
    async with served(tmp_path / "data", sources=[source], policy=ASK) as gate:
        arguments = {"id": "7 b", "dry": True, "X-Api-Token": "t-1", "body": {"name": "Ann", "password": "hunter2"}}
        card = await only_card(gate, "pets.rename", **arguments)
        preview = card["preview"]
        changes = [{"op": "replace", "path": "/id", "value": "8"}]
        changed = await gate.http.post(f"/api/v1/pending/{card['id']}/preview", json={"changes": changes})
        wrong = [{"op": "replace", "path": "/dry", "value": "often"}]
        refused = await gate.http.post(f"/api/v1/pending/{card['id']}/preview", json={"changes": wrong})
        masked = [{"op": "replace", "path": "/body/password", "value": "[redacted]"}]
        literal = await gate.http.post(f"/api/v1/pending/{card['id']}/preview", json={"changes": masked})

    assert (preview["kind"], preview["method"], preview["url"]) == ("http_request", "POST", f"{api}/pets/7 b")
    assert preview["query"] == [{"name": "dry", "value": "true"}]
    assert preview["content_type"] == "application/json"
    assert '"name":"Ann"' in preview["body"]
    assert "hunter2" not in str(card)
    assert {"name": "X-Api-Token", "value": None, "masked_by": "argument"} in preview["headers"]
    assert changed.json()["preview"]["url"] == f"{api}/pets/8"
    assert changed.json()["arguments"]["id"] == "8"
    assert "hunter2" not in changed.text
    assert (refused.status_code, literal.status_code) == (422, 422)


@pytest.mark.req("WEB-09")
async def test_a_command_is_shown_word_by_word_with_the_names_of_its_variables(tmp_path: Path) -> None:
    one = {"args": ["greet", "--name={name}", "{password}"], "stdin": "hello {name}"}
    source = {
        "name": "erp",
        "transport": "cli",
        "connection": "echo",
        "env": {"ERP_KEY": "k-12345678"},
        "cwd": str(tmp_path),
        "options": {"tools": {"greet": one}},
        "required": True,
    }
    async with served(tmp_path / "data", sources=[source], policy=ASK) as gate:
        card = await only_card(gate, "erp.greet", name="Ann Lee", password="hunter2")

    preview = card["preview"]
    assert preview["argv"][1:] == ["greet", "--name=Ann Lee", "[redacted]"]
    assert (preview["kind"], preview["cwd"]) == ("command", str(tmp_path))
    assert (preview["env_names"], preview["stdin"]) == (["ERP_KEY"], "hello Ann Lee")
    assert "k-12345678" not in str(card)


async def test_a_call_of_an_mcp_server_names_the_server_and_the_tool_there(tmp_path: Path) -> None:
    async with serving_fixture(None) as url:
        source = {"name": "fixture", "transport": "mcp", "connection": url, "required": True}
        async with served(tmp_path / "data", sources=[source], policy=ASK) as gate:
            card = await only_card(gate, "fixture.test_simple_text")

    assert card["preview"]["kind"] == "mcp"
    assert (card["preview"]["server"], card["preview"]["tool"]) == ("fixture", "test_simple_text")
    assert card["preview"]["arguments"] == {}


async def test_the_diff_of_a_file_has_its_sizes_and_numbers_of_lines(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.txt").write_text("one\ntwo\n")
    settings = Settings.model_validate(
        {"data_dir": None, "policy": ASK, "tools": {"allowedPaths": [str(files)]}, "builtins": ["write_file"]}
    )
    async with Toolbox(settings=settings) as box:
        arguments = {"path": str(files / "a.txt"), "content": "one\n2\n3\n"}
        paused = await box.call("write_file", arguments, user="local:ann")
        assert isinstance(paused, Paused)
        card = box.pending.card(await box.pending.get(paused.pending_id, by="local:ann"))

    preview = card["preview"]
    assert (preview["kind"], preview["added"], preview["removed"]) == ("diff", 2, 1)
    assert (preview["old_size"], preview["new_size"], card["truncated"]) == (8, 8, False)


async def preview_price(params: dict[str, Any], _context: Any) -> CallPreview:
    text = f"--- a/price\n+++ b/price\n@@ -1 +1 @@\n-price = 1\n+price = {params['euro']}\n"
    return CallPreview(True, "it changes a price", text, data={"path": "price"})


@tool(side_effects="write", preview=preview_price)
async def set_price(euro: int) -> str:
    """Change a price."""
    return f"{euro}"


async def test_a_tool_previews_a_changed_call_again(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [set_price], policy=ASK) as gate:
        card = await only_card(gate, "set_price", euro=2)
        changes = [{"op": "replace", "path": "/euro", "value": 3}]
        changed = await gate.http.post(f"/api/v1/pending/{card['id']}/preview", json={"changes": changes})
        kept = (await gate.http.get(f"/api/v1/pending/{card['id']}")).json()

    assert (changed.json()["arguments"], changed.json()["preview"]["path"]) == ({"euro": 3}, "price")
    assert "+price = 3" in changed.json()["preview"]["text"]
    assert "+price = 2" in kept["preview"]["text"]


async def test_headers_with_the_credential_of_a_source_are_named_and_never_shown(tmp_path: Path, api: str) -> None:
    source = {
        "name": "pets",
        "transport": "http",
        "connection": f"{api}/openapi.json",
        "required": True,
        "auth_type": "bearer",
        "auth_config": {"token": "a-token-of-the-source"},
        "headers": {"X-Api-Key": "a-key-of-the-source", "Accept-Language": "de"},
    }
    async with served(tmp_path / "data", sources=[source], policy=ASK) as gate:
        card = await only_card(gate, "pets.rename", id="7", body={"name": "Ann"})

    own = [header for header in card["preview"]["headers"] if header["masked_by"] == "pets"]
    assert own == [{"name": name, "value": None, "masked_by": "pets"} for name in ("X-Api-Key", "Authorization")]
    assert "of-the-source" not in json.dumps(card)


async def test_a_tool_may_preview_rows_and_one_without_a_preview_has_none(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [plain, prune], policy=ASK) as gate:
        table, none = await only_card(gate, "prune", table="users"), await only_card(gate, "plain", name="x")

    assert {name: table["preview"][name] for name in ("kind", "columns", "rows", "total")} == {
        "kind": "table",
        "columns": ["id"],
        "rows": [[1]],
        "total": 1204,
    }
    assert none["preview"] is None
