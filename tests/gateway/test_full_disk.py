"""A gateway on a disk that is full: it says that it is not ready, and why, and its figures move."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.cli.test_full_disk import fill
from tests.gateway.serving import Served, served
from toolpost import Settings, tool
from toolpost.cli.status import read_status

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(not Path("/bin/mount").exists(), reason="NOT TESTED on a full disk: there is no mount here"),
]


@tool(side_effects="write")
async def note(text: str) -> str:
    """Take a note."""
    return text


async def figures(gate: Served) -> dict[str, float]:
    text = (await gate.http.get("/metrics")).text
    return {
        name: float(value)
        for name, value in re.findall(
            r"^toolpost_(store_\w+|events_waiting|disk_free_bytes) (\S+)$", text, re.MULTILINE
        )
    }


async def test_a_full_disk_is_reported_and_over_once_there_is_room(small_disk: Path) -> None:
    async with served(small_disk / "data", [note]) as gate:
        before, ready = await figures(gate), await gate.http.get("/readyz")
        fill(small_disk)
        refused = await gate.http.post("/api/v1/calls", json={"tool": "note", "arguments": {"text": "x" * 20_000}})
        not_ready, during = await gate.http.get("/readyz"), await figures(gate)
        status = (await gate.http.get("/api/v1/status")).json()
        shown = await read_status(Settings(data_dir=small_disk / "data"), int(gate.url.rpartition(":")[2]))
        (small_disk / "filler").unlink()
        async with asyncio.timeout(60):
            while (again := await gate.http.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.05)

    assert (ready.status_code, again.status_code) == (200, 200)
    assert refused.json()["error"]["error_code"] == "store_unavailable"
    assert (not_ready.status_code, not_ready.json()["code"]) == (503, "store_unavailable")
    assert not_ready.json()["detail"] == "calls cannot be recorded: the disk is full"
    assert (before["store_writable"], during["store_writable"]) == (1, 0)
    assert during["store_write_failures_total"] > before["store_write_failures_total"]
    assert during["disk_free_bytes"] < before["disk_free_bytes"]
    assert (status["status"], status["store"]["writable"]) == ("unavailable", False)
    assert "calls cannot be recorded: the disk is full" in status["problems"]
    assert (shown["status"], shown["gateway"]) == ("unavailable", gate.url)
