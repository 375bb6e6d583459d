"""Large messages: whole below the cap, refused plainly above it, and the connection lives on."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.sources.mcp.rogue import filler
from tests.sources.mcp.rogues import WAYS, Rogue, config_by, rogue_by, tool, toolbox
from toolpost import ToolError

pytestmark = pytest.mark.programs

MB = 1_000_000
LINE = "\n0000012345"  # the beginning of one line of the filler
CAP = {"max_message_bytes": 1 << 20}


async def whole(box: Any, outcome: Any) -> bytes:
    (artifact_id,) = outcome.artifacts
    return bytes(await box.store.artifacts.read(artifact_id, tenant="local"))


@pytest.mark.parametrize("way", WAYS)
async def test_ten_megabytes_arrive_whole(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, tool("big", do={"bytes": 10 * MB})) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            outcome = await box.call("srv.big")
            data = await whole(box, outcome)
    assert outcome.content["size"] == 10 * MB
    assert hashlib.sha256(data).digest() == hashlib.sha256(filler(10 * MB).encode()).digest()


@pytest.mark.parametrize("way", WAYS)
async def test_a_message_above_the_cap_is_refused_and_the_connection_lives_on(tmp_path: Path, way: str) -> None:
    tools = [tool("big", safe=True, do={"bytes": 8 * MB}), tool("echo")]
    with rogue_by(way, tmp_path, *tools) as rogue:
        async with toolbox(config_by(way, rogue, options=CAP)) as box:
            refused = await box.call("srv.big")
            after = await box.call("srv.echo", {"n": 1})
    assert isinstance(refused.error, ToolError)
    assert "max_message_bytes" in str(refused.error)
    assert not refused.error.is_retryable
    assert len(rogue.calls("big")) == 1
    assert after.content["arguments"] == {"n": 1}
    assert (rogue.greetings, len(rogue.pids)) == (1, 1)
    assert len({entry.get("headers", {}).get("mcp-session-id") for entry in rogue.received("tools/call")}) == 1


@pytest.mark.parametrize("way", ["stdio-legacy", "sse"])
async def test_the_call_is_found_whose_answer_is_too_large_wherever_its_id_stands(tmp_path: Path, way: str) -> None:
    tools = [tool("big", do={"bytes": 3 * MB, "id_last": True}), tool("echo")]
    with rogue_by(way, tmp_path, *tools) as rogue:
        async with toolbox(config_by(way, rogue, options=CAP)) as box:
            refused = await box.call("srv.big", timeout_s=60)
            after = await box.call("srv.echo")
    assert "max_message_bytes" in str(refused.error)
    assert (after.status, rogue.greetings) == ("completed", 1)


async def test_only_the_call_with_the_large_answer_fails(tmp_path: Path) -> None:
    tools = [tool("big", do={"bytes": 5 * MB, "sleep": 0.1}), tool("echo", do={"sleep": 0.3})]
    rogue = Rogue(tmp_path, *tools)
    async with toolbox(rogue.config(options=CAP)) as box:
        outcomes = await box.call_many([("srv.echo", {"n": 1}), ("srv.big", {}), ("srv.echo", {"n": 2})])
    assert [outcome.status for outcome in outcomes] == ["completed", "failed", "completed"]
    assert [outcomes[n].content["arguments"] for n in (0, 2)] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("way", ["stdio-legacy", "http-legacy-sse", "http-modern-json", "sse"])
async def test_a_message_just_below_the_cap_passes(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, tool("big", do={"bytes": 1_000_000})) as rogue:
        async with toolbox(config_by(way, rogue, options=CAP)) as box:
            outcome = await box.call("srv.big")
            data = await whole(box, outcome)
    assert data.decode() == filler(1_000_000)


@pytest.mark.parametrize("way", ["stdio-legacy", "http-legacy-sse", "http-modern-json"])
async def test_a_list_of_tools_above_the_cap_is_reported(tmp_path: Path, way: str) -> None:
    tools = [tool(f"t{n}", description=filler(100_000)) for n in range(20)]
    with rogue_by(way, tmp_path, *tools) as rogue:
        async with toolbox(config_by(way, rogue, options=CAP, connect_timeout_s=60)) as box:
            (state,) = box.report
    assert not state.ok
    assert "max_message_bytes" in state.error


async def test_a_large_answer_can_be_read_in_parts_and_searched(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("big", do={"bytes": 2 * MB}))
    async with toolbox(rogue.config(), builtins=["artifact_read", "artifact_search"]) as box:
        outcome = await box.call("srv.big")
        (artifact_id,) = outcome.artifacts
        part = await box.call("artifact_read", {"artifact_id": artifact_id, "offset": 1_500_000, "limit": 1000})
        found = await box.call("artifact_search", {"artifact_id": artifact_id, "query": LINE})
    assert part.content["content"] == filler(2 * MB)[1_500_000:1_501_000]
    assert [match["offset"] for match in found.content["matches"]] == [filler(2 * MB).index(LINE)]
    assert len(json.dumps(outcome.content)) < 10_000


@pytest.mark.parametrize("way", ["stdio-legacy", "stdio-modern"])
async def test_small_answers_behind_a_large_one_arrive_too(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, tool("big", do={"bytes": 3 * MB}), tool("echo")) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            calls: list[tuple[str, dict[str, Any]]] = [
                ("srv.big", {}),
                *(("srv.echo", {"n": n}) for n in range(5)),
                ("srv.big", {}),
            ]
            outcomes = await box.call_many(calls)
            data = [await whole(box, outcomes[n]) for n in (0, -1)]
    assert [outcome.content["arguments"] for outcome in outcomes[1:-1]] == [{"n": n} for n in range(5)]
    assert [one.decode() for one in data] == [filler(3 * MB)] * 2
