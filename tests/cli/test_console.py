"""`toolpost open`: a link that signs in, for the browser of this machine and for no log."""

import asyncio
import re
from pathlib import Path

import httpx2
import pytest

from tests.cli.program import Run
from tests.cli.terminal import at_a_terminal
from tests.gateway.serving import add, served
from toolpost.cli.console import request_ticket, sign_in_link, write_link
from toolpost.contracts.errors import ToolError


def test_open_says_how_to_start_a_gateway_and_prints_no_link_into_a_pipe(toolpost: Run) -> None:
    missing = toolpost("open", "--port", "1")
    piped = toolpost("open", "--no-browser", "--json")

    assert missing.code == 1
    assert "no gateway answers at http://127.0.0.1:1" in missing.err
    assert "toolpost up" in missing.err
    assert piped.json["error"]["error_code"] == "not_a_terminal"


async def test_a_ticket_is_requested_from_the_gateway_of_this_data_folder(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [add]) as gate:
        ticket = await request_ticket(gate.url, (tmp_path / "data" / "token").read_text())
        async with httpx2.AsyncClient(trust_env=False) as http:
            opened = await http.post(f"{gate.url}/api/v1/sessions/redeem", json={"ticket": ticket})
        with pytest.raises(ToolError, match="another data folder"):
            await request_ticket(gate.url, "of another folder")

    assert opened.status_code == 200


async def test_the_link_is_passed_to_the_browser_in_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    link = sign_in_link("http://127.0.0.1:7300", "tpt_1_a")
    paths = [await asyncio.to_thread(write_link, tmp_path, link) for _ in range(2)]

    assert paths[0] == paths[1]
    assert (paths[0].stat().st_mode & 0o777) == 0o600
    assert "http://127.0.0.1:7300/#t=tpt_1_a" in paths[0].read_text()


@pytest.mark.programs
@pytest.mark.parametrize("workers", ["1", "2"])
def test_up_prints_a_link_that_signs_in_to_a_terminal(home: Path, workers: str) -> None:
    done = at_a_terminal(home, {"#t=tpt_": b"\x03"}, "up", "--port", "0", "--workers", workers, cold=True)

    assert re.search(r"Console: http://127\.0\.0\.1:\d+/#t=tpt_[0-9a-f]{20}_", done.out)
