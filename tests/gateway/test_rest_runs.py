"""Runs over HTTP: what a run tells, filters and pages of runs and of their events, and the proof of one run."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.gateway.serving import Served, add, served

SUM = {"tool": "add", "arguments": {"a": 1, "b": 1}}


async def get(gate: Served, path: str, headers: dict[str, str] | None = None, **params: Any) -> Any:
    return (await gate.http.get(f"/api/v1{path}", params=params, headers=headers or {})).json()


async def test_one_run_is_verified_and_a_change_of_another_run_does_not_matter(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with served(folder, [add]) as gate:
        first, second = [(await gate.http.post("/api/v1/calls", json=SUM)).json()["run_id"] for _ in range(2)]
    of_first = "run = (SELECT nr FROM runs WHERE run_id = ?)"
    with closing(sqlite3.connect(folder / "toolpost.db")) as database, database:
        database.execute(f"UPDATE segments SET user = 'eve' WHERE {of_first}", (first,))
    async with served(folder, [add]) as gate:
        changed, intact = [await get(gate, f"/runs/{run_id}/verify") for run_id in (first, second)]
        hidden = await get(gate, f"/runs/{first}/verify", await gate.key("other:eve", "admin"))

    assert intact == {"status": "verified", "problems": [], "events": 3}
    assert (changed["status"], changed["problems"]) == (
        "changed",
        ["events 1 to 3 were changed, or an event before them was"],
    )
    assert hidden["code"] == "run_not_found"
