"""Cron expressions, as crontab(5) describes them, and the jobs of schedules."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from toolpost import Settings, Toolbox
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.jobs import QUEUES, Schedule, TakeLimits
from toolpost.contracts.principal import Principal
from toolpost.runtime.cron import Cron
from toolpost.runtime.schedules import ScheduleTicker


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("* * * * *", "2026-11-19 10:00:30", "2026-11-19 10:01"),
        ("*/15 * * * *", "2026-11-19 10:46", "2026-11-19 11:00"),
        ("0 2 * * *", "2026-11-19 02:00", "2026-11-20 02:00"),
        ("30 9-17/4 * * mon-fri", "2026-11-20 17:30", "2026-11-23 09:30"),
        ("0 0 29 2 *", "2026-03-01", "2028-02-29 00:00"),
        ("0 0 1,15 * 7", "2026-11-19", "2026-11-22 00:00"),  # either of two restricted days
        ("0 12 13 * fri", "2026-11-19", "2026-11-20 12:00"),
        ("@monthly", "2026-11-19", "2026-12-01 00:00"),
        ("5 4 * feb SUN", "2026-11-19", "2027-02-07 04:05"),
    ],
)
def test_the_next_time_of_an_expression(expression: str, after: str, expected: str) -> None:
    assert Cron.parse(expression).next_after(at(after)) == at(expected)


def test_times_are_those_of_the_zone_also_when_its_clock_changes() -> None:
    cron = Cron.parse("30 2 * * *", "Europe/Berlin")
    times = [at("2026-03-27 12:00")]
    for _ in range(3):
        times.append(cron.next_after(times[-1]))

    assert times[1] == at("2026-03-28 01:30")
    assert times[2:] == sorted(set(times[2:]))
    assert times[3] == at("2026-03-30 00:30")


@pytest.mark.req("SCALE-05")
@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4,6,9,11 *"])
def test_an_expression_that_never_matches_is_refused(expression: str) -> None:
    with pytest.raises(ConfigError, match=r"never matches: no month has such a day"):
        Cron.parse(expression)


@pytest.mark.req("SCALE-05")
@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("* * * *", "write the fields minute, hour"),
        ("60 * * * *", "'60' is not a value of the field minute"),
        ("* * * * mon-x", "'mon-x' is not a value of the field day of week"),
        ("*/0 * * * *", "field minute"),
        ("5-1 * * * *", "field minute"),
        ("* -1 * * *", "field hour"),
        ("@never", "is not a cron expression"),
    ],
)
def test_an_invalid_expression_says_which_field_is_wrong(expression: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Cron.parse(expression)


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match="'Mars/Base' is unknown"):
        Cron.parse("* * * * *", "Mars/Base")


@pytest.mark.req("SCALE-05")
async def test_of_several_processes_one_requests_the_call_of_a_time(tmp_path: Path) -> None:
    first, second = Toolbox(settings=Settings(data_dir=tmp_path)), Toolbox(settings=Settings(data_dir=tmp_path))
    schedule = Schedule(
        name="often",
        cron="* * * * *",
        principal=Principal("acme", "ann"),
        tool_name="report.send",
        arguments={"to": "bob"},
        created_at=time.time() - 120,
        created_by="acme:ann",
    )
    following = 0.0
    async with first as one, second as other:
        await one.engine.schedule(schedule)
        for box in (one, other, one):
            following = await ScheduleTicker(box.store, box.router.clock, box.engine.enqueue).tick()
        jobs = await one.store.jobs.take(QUEUES, limits=TakeLimits(free=10))

    assert 0 < time.time() < following + 60
    assert [(job.queue, job.body["tool"], job.body["arguments"]) for job in jobs] == [
        ("runs", "report.send", {"to": "bob"})
    ]
