"""The benchmarks measure what they say; how fast anything is, no test asserts."""

import asyncio
import gc
import io
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from bench.core import catalog, events, imports, native
from bench.core.bare_writer import BareEvent, BareWriter
from bench.core.event_tracks import LogTrack, events_of_a_call
from bench.core.figures import Column, Figure, Target
from bench.core.floor import Floor
from bench.core.harness import Contender, LocalTrack, Measured, Turn, interleave
from bench.core.main import print_figures
from bench.core.processes import Worker
from bench.core.report import show
from bench.core.scale import Scale
from bench.core.subject import ARGUMENTS, SUM, add3
from bench.core.worker import serve
from toolpost.cli.output import Output

pytestmark = pytest.mark.slow

TINY = Scale(rounds=1, calls=5, starts=1, event_rounds=1, events=300, catalog_rounds=1, catalogs=(10, 20))

CONTENDERS = """
from contextlib import asynccontextmanager
from bench.core.harness import Contender

async def call():
    print("a peer that talks")

@asynccontextmanager
async def contenders():
    yield [Contender(name="talker", call=call)]
"""


def unheard(_name: str) -> None:
    pass


async def test_every_contender_has_its_turn_in_every_round_and_the_first_round_only_warms_up() -> None:
    made: list[str] = []
    ticks: list[str] = []

    def contender(name: str) -> Contender:
        async def call() -> None:
            made.append(name)

        return Contender(name=name, call=call)

    tracks = [LocalTrack([contender("a"), contender("b")]), LocalTrack([contender("c")])]
    result = await interleave(tracks, rounds=4, calls=3, tick=ticks.append)

    assert set(result) == {"a", "b", "c"}
    assert [made.count(name) for name in "abc"] == [15, 15, 15]
    rounds = [tuple(ticks[start : start + 3]) for start in range(0, len(ticks), 3)]
    assert all(sorted(order) == ["a", "b", "c"] for order in rounds)
    assert len(set(rounds)) > 1


async def test_a_turn_is_settled_once_and_the_garbage_collector_is_out_of_the_way() -> None:
    seen: list[object] = []

    async def call() -> None:
        seen.append(gc.isenabled())

    async def settle() -> None:
        seen.append("settled")

    turn = await LocalTrack([Contender(name="x", call=call, settle=settle)]).turn("x", 2)

    assert seen == [False, False, "settled"]
    assert gc.isenabled()
    assert len(turn.calls_us) == 2


async def test_the_garbage_collector_comes_back_when_a_contender_fails() -> None:
    async def call() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await LocalTrack([Contender(name="x", call=call)]).turn("x", 1)

    assert gc.isenabled()


def test_calls_are_pooled_and_turns_are_weighed_by_their_median() -> None:
    turns = [
        Turn([1.0] * 98 + [50.0, 60.0], sustained, cpu) for sustained, cpu in [(2.0, 5.0), (4.0, 7.0), (90.0, 6.0)]
    ]

    measured = Measured.of(turns)

    assert tuple(measured)[:5] == pytest.approx((1.0, 60.0, 2.08, 4.0, 6.0))
    assert measured.rounds_us == (1.0, 1.0, 1.0)


def test_contenders_are_compared_round_by_round() -> None:
    """A machine at half its pace in the second round changes nothing."""
    quick = Measured.of([Turn([pace], pace, pace) for pace in (1.0, 2.0, 1.0)])
    slow = Measured.of([Turn([2 * pace], pace, pace) for pace in (1.0, 2.0, 1.0)])

    assert slow.times(quick) == 2


@pytest.mark.programs
def test_a_worker_measures_in_an_interpreter_of_its_own_and_its_prints_do_no_harm(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "talkers.py").write_text(CONTENDERS)

    with Worker(sys.executable, "talkers", path=[tmp_path]) as worker:
        result = asyncio.run(interleave([worker], rounds=2, calls=3))

    assert list(result) == ["talker"]
    assert capfd.readouterr().err.count("a peer that talks") == 9


@pytest.mark.programs
def test_a_worker_that_cannot_start_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="the worker ended with code 1"):
        Worker(sys.executable, "no_such_contenders")

    assert "No module named 'no_such_contenders'" in capfd.readouterr().err


async def test_the_other_end_of_a_worker_answers_line_by_line() -> None:
    answers = io.StringIO()
    wishes = io.StringIO(json.dumps({"name": native.DIRECT, "calls": 4}) + "\n")

    await serve(native.contenders, wishes, answers)

    names, turn = map(json.loads, answers.getvalue().splitlines())
    assert names == [native.DIRECT, native.FLOOR, native.MEMORY, native.SQLITE]
    assert len(turn[0]) == 4


@pytest.mark.parametrize(
    ("sense", "value", "met"),
    [("at most", 0.5, True), ("at most", 0.51, False), ("at least", 0.5, True), ("at least", 0.49, False)],
)
def test_a_target_is_met_at_its_limit_and_missed_beyond(sense: str, value: float, met: bool) -> None:
    target = Target("x", value, sense, 0.5)  # type: ignore[arg-type]

    assert target.met is met
    assert target.to_dict()["met"] is met


def test_a_figure_shows_its_rows_and_whether_its_targets_are_met() -> None:
    stream = io.StringIO()
    targets = [Target("speed", 2.0, "at least", 1.0, "x"), Target("weight", 3000, "at most", 2048, "bytes")]
    columns = (Column("name", "contender"), Column("us", "µs", 2))
    figure = Figure(
        key="k", title="A title", columns=columns, rows=[{"name": "a", "us": 1234.5}], targets=targets, notes=("n",)
    )

    show(figure, Output(stream, as_json=False))

    shown = stream.getvalue()
    assert "A title" in shown
    assert "1,234.50" in shown
    assert "met     speed: 2 x (at least 1)" in shown
    assert "missed  weight: 3,000 bytes (at most 2,048)" in shown


async def test_the_floor_adds_and_refuses_what_does_not_fit() -> None:
    floor = Floor(add3, {"type": "object", "required": ["a", "b", "c"]})

    assert await floor.call(ARGUMENTS) == SUM
    with pytest.raises(ValueError, match="do not fit"):
        await floor.call({})
    await floor.settle()


async def test_the_floor_tries_again_and_opens_its_breaker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreachable() -> None:
        raise ConnectionError

    monkeypatch.setattr("bench.core.floor._PAUSE_S", 0.0)
    floor = Floor(unreachable, {})
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await floor.call({})

    with pytest.raises(RuntimeError, match="the breaker is open"):
        await floor.call({})


def test_the_bare_writer_chains_what_it_writes(tmp_path: Path) -> None:
    writer = BareWriter(tmp_path / "bare.db")
    for seq in range(1, 1502):
        writer.emit(BareEvent("run", seq, 400, 1.0, "call", "local", {"n": seq} if seq % 2 else f'{{"n":{seq}}}'))
    writer.close()

    rows = sqlite3.connect(tmp_path / "bare.db").execute("SELECT seq, payload, hash FROM events ORDER BY id").fetchall()
    assert [row[0] for row in rows] == list(range(1, 1502))
    assert rows[0][1] == '{"n":1}'
    assert len({row[2] for row in rows}) == 1501


@pytest.mark.req("MET-02")
def test_a_native_call_costs_less_than_its_limit_beside_its_floor_and_a_direct_await() -> None:
    figure = native.measure(TINY, unheard)

    medians = {row["name"]: row["median_us"] for row in figure.rows}
    assert list(medians) == [native.DIRECT, native.FLOOR, native.MEMORY, native.SQLITE]
    overhead, cpu = figure.targets
    assert overhead.limit == 50
    assert overhead.met  # by a factor of a thousand, so that a busy machine does not matter
    assert overhead.value == (medians[native.SQLITE] - medians[native.DIRECT]) / 1000
    assert (cpu.limit, cpu.value) == (4.6, figure.rows[-1]["of_floor_cpu"])


def test_a_native_call_is_held_to_two_fifths_of_a_peer_that_takes_part() -> None:
    async def slow() -> None:
        await asyncio.sleep(0)

    figure = native.measure(TINY, unheard, tracks=[LocalTrack([Contender(name="peer", call=slow)])], peer="peer")

    assert [target.limit for target in figure.targets] == [50, 4.6, 0.4, 0.4]
    assert figure.rows[-1]["of_peer"] == 1


def test_no_event_is_dropped_while_the_log_is_measured() -> None:
    figure = events.measure(TINY, unheard)

    told = {target.name: target for target in figure.targets}
    assert told["dropped"].value == 0
    assert told["waiting at the peak"].met


async def test_the_log_under_test_holds_every_event_of_real_calls() -> None:
    log = LogTrack(await events_of_a_call())

    await log.turn(log.names[0], 100)

    assert [(facts.emitted, facts.stored) for facts in log.facts] == [(102, 102)]


def test_catalogs_of_every_size_are_filled_and_weighed() -> None:
    figure = catalog.measure(TINY, unheard)

    assert [row["tools"] for row in figure.rows] == [10, 20]
    assert len(figure.targets) == 3
    assert figure.targets[-1].value > 0


@pytest.mark.programs
def test_fresh_interpreters_are_started() -> None:
    figure = imports.measure(TINY, unheard)

    assert imports.FRONT_DOOR in [row["name"] for row in figure.rows]
    assert [target.limit for target in figure.targets] == [2.0, 3.0, 2.0, 2.6]


@pytest.mark.programs
def test_json_is_one_document_with_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    code = print_figures(TINY, as_json=True)

    printed = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [figure["key"] for figure in printed["figures"]] == ["native", "imports", "events", "catalog"]
    assert printed["machine"]["cores"]


@pytest.mark.programs
def test_people_get_tables_and_a_last_line_that_counts_the_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_figures(TINY, as_json=False) == 0

    assert "targets met, in" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.programs
def test_a_worker_needs_nothing_that_is_not_in_the_standard_library() -> None:
    root = Path(__file__).parents[2]
    program = f"import sys; sys.path[:0] = [{str(root)!r}, {str(root / 'src')!r}]; import bench.core.worker"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
