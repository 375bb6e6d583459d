"""Simulated worlds are repeatable, and all promises hold in them."""

import os
import subprocess
import sys

import pytest

from tests.postgres.server import PostgreSQL
from toolpost.testing.simulation import CrashPoint, FaultRates, WorldOptions, enumerate_crashes, simulate
from toolpost.testing.simulation.__main__ import main

MANY_FAULTS = FaultRates(
    crashes=0.005,
    full_disks=0.01,
    tools_refuse=0.1,
    tools_break=0.1,
    tools_hang=0.05,
    answers_lost=0.1,
    queries_fail=0.01,
    kills_s=3.0,
    stalls_s=1.0,
    jumps_s=1.0,
)


@pytest.mark.parametrize("seed", range(2))
def test_all_promises_hold_under_many_faults(seed: int) -> None:
    report = simulate(seed, WorldOptions(jobs=60, processes=2, rates=MANY_FAULTS))

    assert report.broken == []
    assert report.calls > 60


def test_worlds_have_every_fault() -> None:
    lines: list[str] = []
    options = WorldOptions(jobs=100, processes=3, rates=MANY_FAULTS, tell=lines.append)
    reports = [simulate(seed, options) for seed in (6, 7)]
    trace = "\n".join(lines)

    assert [report.broken for report in reports] == [[], []]
    assert sum(report.crashes for report in reports) > 2
    assert sum(report.unknown for report in reports) > 0
    for happened in ("crashes", "disconnected", "store_unavailable", "clock jumps", "stalls", "already_answered"):
        assert happened in trace, happened


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_crashes_at_a_chosen_commit(when: str) -> None:
    lines: list[str] = []
    point = CrashPoint(12, "before" if when == "before" else "after")
    report = simulate(1, WorldOptions(jobs=5, processes=1, rates=FaultRates(), crash_point=point, tell=lines.append))

    assert (report.broken, report.crashes) == ([], 1)
    assert [line for line in lines if line.endswith("p1 crashes")]


def test_crashes_are_enumerated_before_and_after_every_commit() -> None:
    whole, *crashed = enumerate_crashes(3, WorldOptions(jobs=1, processes=1))

    assert len(crashed) == 2 * whole.commits
    assert [report.broken for report in crashed if report.broken] == []
    assert whole.crashes == 0
    assert {report.crashes for report in crashed} == {1}


@pytest.mark.req("SCALE-23")
@pytest.mark.programs
def test_all_promises_hold_on_postgresql_while_processes_stall(postgres: PostgreSQL) -> None:
    lines: list[str] = []
    rates = MANY_FAULTS._replace(full_disks=0.0, stalls_s=1.0)
    options = WorldOptions(jobs=40, processes=3, rates=rates, database=postgres.url(), tell=lines.append)
    reports = [simulate(seed, options) for seed in (8, 9, 8)]  # in some worlds no process stalls

    assert [report.broken for report in reports] == [[], [], []]
    assert reports[0].fingerprint == reports[2].fingerprint
    assert [line for line in lines if "stalls for" in line]


@pytest.mark.programs
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_crashes_at_a_chosen_commit_on_postgresql(when: str, postgres: PostgreSQL) -> None:
    point = CrashPoint(12, "before" if when == "before" else "after")
    options = WorldOptions(jobs=5, processes=1, rates=FaultRates(), crash_point=point, database=postgres.url())
    report = simulate(1, options)

    assert (report.broken, report.crashes) == ([], 1)


@pytest.mark.req("SCALE-23")
@pytest.mark.programs
def test_a_seed_gives_the_same_trace_in_another_process() -> None:
    def trace(hash_seed: str) -> str:
        command = [sys.executable, "-m", "toolpost.testing.simulation", "--seed", "9", "--calls", "80"]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
        )
        return done.stdout.rpartition("\n1 worlds")[0]

    first = trace("1")
    assert len(first.splitlines()) > 100
    assert first == trace("2")


def test_the_command_prints_the_sums_and_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "0-1", "--calls", "10"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("2 worlds, ")
    assert told.endswith("0 broken promises\n")


def test_the_command_names_the_seed_of_a_broken_promise(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.stores.sql.pending.SQLPendingStore.expire", _expire_nothing)

    assert main(["--seeds", "2-2", "--calls", "60"]) == 1
    told = capsys.readouterr()
    assert "seed 2: " in told.err
    assert "python -m toolpost.testing.simulation --seed 2 --calls 60" in told.err
    assert "1 worlds with broken promises" in told.out


async def _expire_nothing(*_: object) -> list[object]:
    return []
