"""`toolpost open`: a link that signs in, for the browser of this machine and for no log."""

import asyncio
import re
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.responses import Response

from tests.cli.program import Run
from tests.cli.terminal import at_a_terminal
from tests.gateway.running import furnish, running
from tests.gateway.serving import OPERATOR, Served, add, listening, served
from toolpost import Settings, Toolbox
from toolpost.cli.console import check_gateway, operator_ticket, shows_console, sign_in_link, write_link
from toolpost.cli.output import Output
from toolpost.console import files
from toolpost.contracts.errors import ToolError


def test_open_says_how_to_start_a_gateway_and_prints_no_link_into_a_pipe(toolpost: Run, home: Path) -> None:
    missing = toolpost("open", "--port", "1")
    (home / ".toolpost").mkdir()
    stopped = toolpost("open", "--port", "1")
    piped = toolpost("open", "--no-browser", "--json")

    assert (missing.code, stopped.code) == (1, 1)
    assert "there is no data folder" in missing.err
    assert "no gateway answers at http://127.0.0.1:1" in stopped.err
    assert "toolpost up" in stopped.err
    assert piped.json["error"]["error_code"] == "not_a_terminal"


async def test_a_ticket_is_written_to_the_store_of_the_running_gateway(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [add]) as gate, Toolbox(settings=Settings(data_dir=tmp_path / "data")) as box:
        await check_gateway(box.store.mac, gate.url, port_of(gate))
        ticket = await operator_ticket(box.store, "local:me")
        async with httpx2.AsyncClient(trust_env=False) as http:
            opened = await http.post(f"{gate.url}/api/v1/sessions/redeem", json={"ticket": ticket})

    assert opened.status_code == 200
    assert (opened.json()["me"]["user"], opened.json()["me"]["operator"]) == (OPERATOR, True)


class Listener:
    """A program that listens on the port, passes what it gets on to the gateway, and keeps it."""

    def __init__(self, gate: Served) -> None:
        self.gate = gate
        self.heard: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.heard.append((scope["method"], scope["path"], scope["query_string"], scope["headers"]))
            async with httpx2.AsyncClient(trust_env=False) as http:
                reply = await http.get(f"{self.gate.url}{scope['path']}?{scope['query_string'].decode()}")
            await Response(reply.content, reply.status_code, media_type="application/json")(scope, receive, send)


async def test_another_program_on_the_port_gets_no_secret_and_cannot_pass_for_the_gateway(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [add]) as gate, Toolbox(settings=Settings(data_dir=tmp_path / "data")) as box:
        async with listening(listener := Listener(gate)) as url:
            with pytest.raises(ToolError, match="is not the gateway of this data folder"):
                await check_gateway(box.store.mac, url, int(url.rpartition(":")[2]))
        token = (tmp_path / "data" / "token").read_text()

    assert [one[:2] for one in listener.heard] == [("GET", "/api/v1/identity")]
    assert token not in repr(listener.heard)
    assert b"authorization" not in dict(listener.heard[0][3])


async def test_the_gateway_of_another_data_folder_is_refused(tmp_path: Path) -> None:
    async with (
        served(tmp_path / "data", [add]) as gate,
        Toolbox(settings=Settings(data_dir=tmp_path / "other")) as box,
    ):
        with pytest.raises(ToolError, match="another data folder"):
            await check_gateway(box.store.mac, gate.url, port_of(gate))


@pytest.mark.programs
def test_open_signs_in_beside_a_running_gateway(home: Path) -> None:
    furnish(home)
    with running(home, "--user", OPERATOR) as gateway:
        address = gateway.address.removesuffix("/mcp")
        done = at_a_terminal(home, {}, "open", "--no-browser", "--port", address.rpartition(":")[2], cold=True)
        ticket = re.search(r"#t=(tpt_\w+-?\S*)", done.out)
        assert ticket is not None, done.out
        opened = httpx2.post(f"{address}/api/v1/sessions/redeem", json={"ticket": ticket[1]}, trust_env=False)

    assert opened.json()["me"]["user"] == OPERATOR


def port_of(gate: Served) -> int:
    return urlsplit(gate.url).port or 0


async def test_the_link_is_passed_to_the_browser_in_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    link = sign_in_link("http://127.0.0.1:7300", "tpt_1_a")
    paths = [await asyncio.to_thread(write_link, tmp_path, link) for _ in range(2)]

    assert paths[0] == paths[1]
    assert (paths[0].stat().st_mode & 0o777) == 0o600
    assert "http://127.0.0.1:7300/#t=tpt_1_a" in paths[0].read_text()


def test_a_gateway_without_a_console_says_so_instead_of_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(files, "console_folder", lambda: None)
    terminal, pipe = Terminal(), StringIO()
    shown = [shows_console(Output(stream, as_json=False)) for stream in (terminal, pipe)]

    assert shown == [False, False]
    assert "not in this installation" in terminal.getvalue()
    assert "make console" in terminal.getvalue()
    assert pipe.getvalue() == ""


@pytest.mark.programs
@pytest.mark.parametrize("workers", ["1", "2"])
def test_up_prints_a_link_that_signs_in_to_a_terminal(home: Path, workers: str) -> None:
    done = at_a_terminal(home, {"#t=tpt_": b"\x03"}, "up", "--port", "0", "--workers", workers, cold=True)

    assert re.search(r"Console: http://127\.0\.0\.1:\d+/#t=tpt_[0-9a-f]{20}_", done.out)
