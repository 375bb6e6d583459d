"""The lock file over REST: shown, compared, and approved as it was shown."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.serving import Served, add, served
from tests.gateway.test_definitions import POISON, SERVER, Place, called, gate, outcome, place
from toolpost import Completed
from toolpost.catalog.lock import Lock

__all__ = ["gate", "place"]  # fixtures
TOOLS = '''
from toolpost import tool


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="pure")
async def sub(a: int, b: int) -> int:
    """Subtract two numbers."""
    return a - b
'''


@pytest.fixture
async def unpinned(tmp_path: Path) -> AsyncIterator[Served]:
    (tmp_path / "tools.py").write_text(TOOLS)
    local = {"name": "local", "transport": "python", "connection": str(tmp_path / "tools.py")}
    async with served(tmp_path / "data", lock=tmp_path / "toolpost.lock", sources=[local]) as gate:
        yield gate


async def approved(gate: Served, **body: Any) -> tuple[int, Any]:
    answer = await gate.http.post("/api/v1/lock/approve", json=body)
    return answer.status_code, answer.json()


async def shown(gate: Served) -> dict[str, Any]:
    found = (await gate.http.get("/api/v1/lock/diff")).json()["differences"]
    return {one["tool"]: one for one in found}


@pytest.mark.programs
@pytest.mark.req("WEB-13")
async def test_a_changed_tool_is_shown_and_approved_as_shown(gate: Served, place: Place) -> None:
    key = await gate.key("acme:bot", "call")
    waiting = await called(gate, key)
    listed = (await gate.http.get("/api/v1/tools", params={"view": "summary", "held": "yes"})).json()
    (source,) = (await gate.http.get("/api/v1/sources")).json()
    change, written_at = (await shown(gate))["srv.look"], place.lock.stat().st_mtime
    status, answer = await approved(gate, tools=["srv.look"], hashes={"srv.look": change["hash"]})
    done = await outcome(gate, waiting, "acme:bot")

    assert [one["name"] for one in listed["items"]] == ["srv.look"]
    assert (change["kind"], change["pinned"], change["changes"][0]["after"]) == ("changed", True, POISON)
    assert {"pinned": 1, "changed": 1, "new": 0, "gone": 0}.items() <= source["lock"].items()
    assert source["lock"]["written_at"] == pytest.approx(written_at)
    assert (status, answer["approved"]) == (200, ["srv.look"])
    assert isinstance(done, Completed), done
    assert Lock(place.lock).sources["srv"]["look"].hash == change["hash"]
    assert await shown(gate) == {}


@pytest.mark.programs
@pytest.mark.req("WEB-13")
async def test_a_tool_that_is_not_as_it_was_shown_is_not_approved(gate: Served, place: Place) -> None:
    before = place.lock.read_text()
    stale = await approved(gate, tools=["srv.look"], hashes={"srv.look": f"sha256:{'0' * 64}"})
    unseen = await approved(gate, sources=["srv"], hashes={})
    unknown = await approved(gate, tools=["srv.nothing"], hashes={})
    nothing = await approved(gate, hashes={})

    assert (stale[0], stale[1]["code"], stale[1]["errors"]) == (409, "lock_changed", ["srv.look"])
    assert "nothing was approved" in stale[1]["detail"]
    assert (unseen[0], unseen[1]["code"]) == (409, "lock_changed")
    assert (unknown[0], nothing[0]) == (404, 422)
    assert place.lock.read_text() == before
    assert SERVER.exists()


async def test_a_source_that_is_not_pinned_is_pinned_as_a_whole(unpinned: Served, tmp_path: Path) -> None:
    before = (await unpinned.http.get("/api/v1/lock")).json()
    tools = await shown(unpinned)
    hashes = {name: one["hash"] for name, one in tools.items()}
    partly = await approved(unpinned, tools=["local.add"], hashes=hashes)
    wholly = await approved(unpinned, sources=["local"], hashes=hashes)
    after = (await unpinned.http.get("/api/v1/lock")).json()
    tool = (await unpinned.http.get("/api/v1/tools/local.add")).json()

    assert (before["exists"], before["unpinned"], before["sources"]) == (False, ["local"], {})
    assert {name: (one["kind"], one["pinned"]) for name, one in tools.items()} == {
        "local.add": ("new", False),
        "local.sub": ("new", False),
    }
    assert (partly[0], partly[1]["code"]) == (409, "source_not_pinned")
    assert (wholly[0], sorted(wholly[1]["approved"])) == (200, ["local.add", "local.sub"])
    assert (after["exists"], after["sources"], after["unpinned"]) == (True, {"local": 2}, [])
    assert tool["pinned_hash"] == hashes["local.add"]
    assert (tmp_path / "toolpost.lock").exists()


async def test_approving_is_for_the_operator(unpinned: Served) -> None:
    admin = await unpinned.key("acme:ann", "admin")
    body: dict[str, Any] = {"sources": ["local"], "hashes": {}}

    assert (await unpinned.http.post("/api/v1/lock/approve", json=body, headers=admin)).status_code == 403
    assert (await unpinned.http.get("/api/v1/lock/diff", headers=admin)).status_code == 200
    assert (await unpinned.http.get("/api/v1/lock/diff?source=none")).status_code == 404


async def test_without_pinning_a_problem_names_the_setting(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [add], lock=None) as gate:
        answer = await gate.http.get("/api/v1/lock")

    assert (answer.status_code, answer.json()["code"]) == (409, "no_lock")
    assert "lock: null" in answer.json()["detail"]
