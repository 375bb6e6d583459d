"""The MCP benchmarks measure what they say; how fast anything is, none asserts but for the time to connect."""

import asyncio
import json
import subprocess
import sys

import pytest

from bench.core.harness import LocalTrack, Turn
from bench.mcp import calls, cycles, discovery, names
from bench.mcp.discover import KINDS
from bench.mcp.endpoint import ARGUMENTS, IN_PROCESS, MESSAGE, STDIO, command, serving
from bench.mcp.floor import raw_client
from bench.mcp.scale import McpScale
from bench.mcp.seats import SMALL, USUAL, ManyAtOnce, OneByOne, Sat, crowded, seated
from bench.mcp.server import ECHO, PROTOCOL, Answers

pytestmark = pytest.mark.slow

TINY = McpScale(rounds=1, calls=2, crowds=1, starts=1, tools=20, cycles=5)
BUSY_TURNS = 8  # what a busy machine is given to be fast once


def unheard(_name: str) -> None:
    pass


@pytest.mark.programs
@pytest.mark.parametrize("wire", calls.WIRES, ids=lambda wire: wire.key)
def test_calls_are_measured_beside_the_floor_the_sdk_and_fastmcp(wire: calls.Wire) -> None:
    ticks: list[str] = []

    figure = calls.measure(TINY, wire, ticks.append, peers=False)

    rows = {row["name"]: row for row in figure.rows}
    assert list(rows) == [name for name in wire.rows if name in names.OWN]
    assert rows[names.FLOOR]["of_floor"] == rows[names.FASTMCP]["of_fastmcp"] == 1
    beside = {name: row["of_call_tool"] for name, row in rows.items() if "of_call_tool" in row}
    assert beside.get(names.CALL_TOOL, 1) == 1
    assert (names.MEMORY in beside) == (wire.key == "in_process")
    goals = [goal for goal in wire.goals if goal is not None]
    assert [target.limit for target in figure.targets] == [*[calls.CPU_OF_FASTMCP] * 4, *goals]
    assert len(ticks) == calls.count(TINY, wire, peers=False)


@pytest.mark.programs
@pytest.mark.req("MET-01")
async def test_every_tool_is_discovered_in_a_fresh_process_and_made_ready_for_a_model() -> None:
    with serving() as small, serving(tools=TINY.tools) as large:
        track = discovery.DiscoveryTrack(small, large)
        turn = await track.turn(discovery.TOOLBOX, 1)
        (cell,) = track.cells[discovery.TOOLBOX]
        while (best := fastest(track)) >= discovery.CONNECT_MS and len(track.cells[discovery.TOOLBOX]) < BUSY_TURNS:
            await track.turn(discovery.TOOLBOX, 1)

    assert cell["tools"] == TINY.tools
    assert best < discovery.CONNECT_MS
    assert cell["held_mb"] <= cell["peak_mb"]
    assert turn.cpu_us == cell["cpu_ms"] * 1000


def fastest(track: discovery.DiscoveryTrack) -> float:
    return min(cell["wall_ms"] for cell in track.cells[discovery.TOOLBOX])


@pytest.mark.programs
@pytest.mark.parametrize("name", discovery.KINDS)
async def test_every_contender_discovers(name: str) -> None:
    with serving(tools=TINY.tools) as url:
        async with asyncio.timeout(100), KINDS[discovery.KINDS[name]](url) as (found, convert):
            assert (found, len(convert())) == (TINY.tools, TINY.tools)


def test_discovery_is_held_to_fastmcp_to_the_floor_and_to_two_seconds() -> None:
    cell = {"tools": 5_000.0, "cpu_ms": 10.0, "wall_ms": 12.0, "held_mb": 3.0, "peak_mb": 4.0, "convert_ms": 1.0}
    doubled = {key: 2 * value for key, value in cell.items()}

    figure = discovery.figure({name: [doubled if name == discovery.TOOLBOX else cell] * 2 for name in discovery.KINDS})

    of_others = [(2, 1.3), (2, 1.3), (2, 2.5), (2, 2.5)]
    assert [(target.value, target.limit) for target in figure.targets] == [*of_others, (24, 2_000), (2, 20)]


@pytest.mark.programs
def test_connections_that_hang_and_are_cut_leave_nothing_behind() -> None:
    figure = cycles.measure(TINY, unheard)

    left = {target.name: target.value for target in figure.targets[:4]}
    assert left == {f"{key} left": 0 for key in cycles.KEPT}


@pytest.mark.programs
async def test_the_server_echoes_by_hand_on_stdio_and_over_http() -> None:
    with serving() as url:
        for target in (STDIO, url):
            async with asyncio.timeout(100), raw_client(target) as client:
                said = await client.call(ECHO, ARGUMENTS)
                assert said["content"] == [{"type": "text", "text": MESSAGE}]


def test_the_server_knows_the_handshake_of_old_and_nothing_newer() -> None:
    answers = Answers(tools=2)

    welcome = json.loads(answers.to({"method": "initialize", "id": 1, "params": {}}) or b"")
    refusal = json.loads(answers.to({"method": "server/discover", "id": "a", "params": {}}) or b"")

    assert welcome["result"]["protocolVersion"] == PROTOCOL
    assert refusal["id"] == "a"
    assert refusal["error"]["code"] == -32601
    assert answers.to({"method": "notifications/initialized"}) is None


@pytest.mark.programs
def test_the_server_ends_with_its_input() -> None:
    done = subprocess.run(command(), input=b"", capture_output=True, timeout=100, check=True)

    assert done.stdout == b""


async def test_a_contender_sits_alone_and_in_a_crowd_and_the_crowd_counts_per_call() -> None:
    made: list[str] = []

    async def call() -> str:
        made.append(MESSAGE)
        return MESSAGE

    track = LocalTrack(await seated("x", call))
    await OneByOne(track).turn("x", 3)
    assert len(made) == 1 + 3

    each = await ManyAtOnce(track).turn("x", 1)
    whole = await track.turn(crowded("x"), 1)
    assert len(made) == 4 + 2 * USUAL.size
    assert each.sustained_us < whole.sustained_us


async def test_a_session_for_every_call_is_asked_for_less() -> None:
    made: list[str] = []

    async def call() -> str:
        made.append(MESSAGE)
        return MESSAGE

    track = LocalTrack(await seated(names.LANGCHAIN, call))
    await OneByOne(track).turn(names.LANGCHAIN, 100)
    await ManyAtOnce(track).turn(names.LANGCHAIN, 1)

    assert len(made) == 1 + 4 + SMALL.size


async def test_a_contender_that_does_not_echo_is_not_measured() -> None:
    async def call() -> str:
        return "something else"

    with pytest.raises(RuntimeError, match="x does not echo: 'something else'"):
        await seated("x", call)


def test_cpu_is_compared_round_by_round_and_the_first_round_only_warms_up() -> None:
    ours = Sat.of([Turn([1.0], 1.0, cpu) for cpu in (900.0, 2.0, 4.0, 2.0)])
    theirs = Sat.of([Turn([1.0], 1.0, cpu) for cpu in (1.0, 1.0, 2.0, 1.0)])

    assert ours.cpu_times(theirs) == 2


def test_a_floor_stands_in_every_process() -> None:
    assert names.floor_of(names.SQLITE) == names.FLOOR
    assert names.floor_of(names.PYDANTIC_AI) == names.FLOOR_2
    assert names.floor_of(names.LANGCHAIN) == names.FLOOR_1
    assert IN_PROCESS != STDIO
    assert sys.executable in command()
