"""`toolpost status`: the running gateway is asked; without one, the store is read and left as it is."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse

from tests.cli.program import Run
from tests.gateway.serving import add, listening, served
from toolpost import Settings, Toolbox
from toolpost.cli.console import NO_GATEWAY
from toolpost.cli.status import format_age, read_status
from toolpost.contracts.errors import ToolError

ORPHAN = (
    "UPDATE runs SET owner = 'own_gone', status = 'running', open_calls = 1, updated_at = ? WHERE tool_name = 'add'"
)


@pytest.mark.req("OPS-03")
async def test_the_running_gateway_is_asked(tmp_path: Path) -> None:
    down = {"name": "shop", "transport": "python", "connection": str(tmp_path / "missing.py")}
    async with served(tmp_path / "data", [add], sources=[down]) as gate:
        await gate.box.wait_for_sources()
        settings = Settings(data_dir=tmp_path / "data")
        shown = await read_status(settings, int(gate.url.rpartition(":")[2]))

    assert (shown["status"], shown["gateway"], shown["workers"]) == ("degraded", gate.url, 1)
    assert [source["name"] for source in shown["sources"]] == ["shop"]
    assert len(shown["owners"]) == 1


@pytest.mark.sqlite
@pytest.mark.req("OPS-03")
async def test_without_a_gateway_the_store_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    async with Toolbox(tools=[add], settings=settings) as box:
        await box.call("add", {"a": 1, "b": 2})
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        db.execute(ORPHAN, (time.time() - 7500,))
    shown = await read_status(settings, 1)
    again = await read_status(settings, 1)

    assert (shown["status"], shown["gateway"]) == (NO_GATEWAY, None)
    assert shown["runs"] == again["runs"] == {"running": 1, "paused": 0}
    assert [(one["id"], one["alive"], one["unfinished"]) for one in again["owners"]] == [("own_gone", False, 1)]
    assert "no gateway answers at http://127.0.0.1:1" in shown["problems"][0]
    assert "process own_gone has ended and left 1 unfinished call or answer" in shown["problems"][1]
    assert "(add) is running and has no event for 2 h" in shown["problems"][2]


async def test_another_program_on_the_port_gets_no_token(tmp_path: Path) -> None:
    heard: list[dict[bytes, bytes]] = []

    async def other(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            heard.append(dict(scope["headers"]))
            await JSONResponse({"proof": "no"})(scope, receive, send)

    settings = Settings(data_dir=tmp_path)
    async with Toolbox(settings=settings), listening(other) as url:
        shown = await read_status(settings, int(url.rpartition(":")[2]))

    assert shown["status"] == NO_GATEWAY
    assert "is not the gateway of this data folder" in shown["problems"][0]
    assert not any(b"authorization" in headers for headers in heard)


async def test_a_folder_in_memory_has_no_status() -> None:
    with pytest.raises(ToolError, match="without a data folder"):
        await read_status(Settings(data_dir=None), 1)


def test_the_exit_code_shows_that_no_gateway_runs(toolpost: Run, home: Path) -> None:
    before = sorted(home.iterdir())
    new = toolpost("status", "--port", "1")
    assert sorted(home.iterdir()) == before
    toolpost("tools", "call", "local.wipe", "--args", '{"name": "disk"}')
    text, document = toolpost("status", "--port", "1"), toolpost("status", "--port", "1", "--json")

    assert (new.code, text.code, document.code) == (4, 4, 4)
    assert "the store has no data yet: `toolpost up` starts a gateway" in new.err
    assert "no gateway answers; this is the status of the store" in text.out
    assert "1, the oldest for" in text.out
    assert document.json["pending"]["open"] == 1


@pytest.mark.sqlite
@pytest.mark.req("OPS-03")
def test_doctor_finds_processes_that_left_calls_and_calls_without_events(toolpost: Run, home: Path) -> None:
    toolpost("tools", "call", "local.add", "--args", '{"a": 1, "b": 2}')
    with closing(sqlite3.connect(home / ".toolpost" / "toolpost.db")) as db, db:
        db.execute(ORPHAN.replace("'add'", "'local.add'"), (time.time() - 7500,))
    done = toolpost("doctor", "--json")
    found = [check["detail"] for check in done.json["checks"] if (check["name"], check["state"]) == ("work", "note")]

    assert done.code == 0
    assert any("process own_gone has ended and left 1 unfinished call" in detail for detail in found)
    assert any("(local.add) is running and has no event for 2 h" in detail for detail in found)


def test_ages_are_in_their_largest_unit() -> None:
    assert [format_age(one) for one in (0, 59, 60, 7200, 200_000)] == ["0 s", "59 s", "1 min", "2 h", "2 d"]
