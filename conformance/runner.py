"""Runs the suite's scenarios, a few at a time, and tells which of them our client, server and gateway pass."""

import argparse
import asyncio
import json
import os
import re
import shlex
import sys
import tempfile
import time
import tomllib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests import parts

HERE = Path(__file__).parent
TIMEOUT_S = 45.0
STARTUP_S = 60.0
LISTED = re.compile(r"^  - (\S+)", re.MULTILINE)
COLOURS = {"passed": "green", "failed": "red", "skipped": "yellow"}

ON_EVERY_MESSAGE = "wire-schema-valid"  # checked in every scenario, also where nothing else is

Verdict = Literal["passed", "failed", "skipped"]
Subject = Literal["client", "server", "gateway"]
SUBJECTS: tuple[Subject, ...] = ("client", "server", "gateway")
TITLES = {"client": "mcp client", "server": "mcp server", "gateway": "mcp server through the gateway"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one scenario went; in one that is `skipped` the suite passed the client without checking anything."""

    scenario: str
    verdict: Verdict
    passed: int = 0
    checks: int = 0
    seconds: float = 0.0
    timed_out: bool = False
    output: str = ""

    @property
    def trouble(self) -> str:
        """What was said of a failure."""
        return self.output if self.verdict == "failed" else ""


def own_client() -> str:
    """The command of our client; `exec` leaves no shell between, so that the suite's timeout ends the client."""
    return f"exec {shlex.join([sys.executable, '-m', 'conformance.driver'])}"


async def list_scenarios(subject: Subject = "client") -> list[str]:
    """The names of all scenarios of clients or of servers, in the suite's order."""
    code, output = await _suite("list", "--client" if subject == "client" else "--server")
    if code:
        raise RuntimeError(f"the conformance suite could not list its scenarios: {output}")
    return LISTED.findall(output)


async def run_scenario(
    name: str, *, client: str | None = None, spec_version: str | None = None, keep: Path | None = None
) -> Result:
    """Run one scenario; a client that was too slow gets one more chance, for a busy machine is no finding."""
    result = await _run_once(name, client or own_client(), spec_version, keep)
    if result.timed_out:
        result = await _run_once(name, client or own_client(), spec_version, keep)
    return result


async def _run_once(name: str, client: str, spec_version: str | None, keep: Path | None) -> Result:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        where = keep or Path(scratch)
        wanted = ["--command", client, "--scenario", name, "--timeout", str(round(TIMEOUT_S * 1000))]
        version = [] if spec_version is None else ["--spec-version", spec_version]
        code, output = await _suite("client", *wanted, *version, "--output-dir", str(where))
        checks = _newest_checks(where, name)
    return _judge(name, code, output, checks, time.monotonic() - begun)


@asynccontextmanager
async def server_under_test(subject: Subject) -> AsyncGenerator[str]:
    """A running server of the fixture, alone or behind the gateway, and its address."""
    arguments = () if subject == "server" else ("--through-gateway",)
    process = await asyncio.create_subprocess_exec(  # noqa: TID251 - a program under test, and this is no part of the package
        sys.executable,
        "-m",
        "conformance.fixture",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        cwd=parts.ROOT,
    )
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    try:
        async with asyncio.timeout(STARTUP_S):
            url = (await process.stdout.readline()).decode().strip()
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def run_server_scenario(name: str, url: str, *, keep: Path | None = None) -> Result:
    """Run one scenario against a server."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        where = keep or Path(scratch)
        wanted = ["--url", url, "--scenario", name, "--timeout", str(round(TIMEOUT_S * 1000))]
        code, output = await _suite("server", *wanted, "--output-dir", str(where))
        checks = _newest_checks(where, f"server-{name}")
    return _judge(name, code, output, checks, time.monotonic() - begun)


def _judge(name: str, code: int, output: str, checks: list[dict[str, Any]], seconds: float) -> Result:
    statuses = [check["status"] for check in checks if check["id"] != ON_EVERY_MESSAGE]
    passed = statuses.count("SUCCESS")
    counted = passed + statuses.count("FAILURE") + statuses.count("WARNING")
    return Result(
        scenario=name,
        verdict="failed" if code else _unfailed(statuses),
        passed=passed,
        checks=counted,
        seconds=seconds,
        timed_out="CLIENT TIMED OUT" in output,
        output=output,
    )


def _unfailed(statuses: list[str]) -> Verdict:
    """What to call a scenario that the suite is content with; one that left no trace has shown nothing."""
    if "SUCCESS" in statuses:
        return "passed"
    return "skipped" if "SKIPPED" in statuses else "failed"


def _newest_checks(where: Path, name: str) -> list[dict[str, Any]]:
    """The checks of a scenario's last run; its folder is named by the scenario and the time."""
    files = sorted(where.glob(f"{name}-2*/checks.json"))
    found: list[dict[str, Any]] = json.loads(files[-1].read_bytes()) if files else []
    return found


async def _suite(*arguments: str) -> tuple[int, str]:
    """Run the suite's command to its end: its exit code, and what it said.

    Tests that measure coverage leave the client out: it would start half as fast again. The suite is one large file,
    which is compiled once.
    """
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    process = await asyncio.create_subprocess_exec(  # noqa: TID251 - the suite is a program, and this is no part of the package
        *parts.conformance(),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=parts.ROOT,
        env={**unmeasured, "NODE_COMPILE_CACHE": str(parts.ROOT / "node_modules" / ".cache" / "compiled")},
    )
    try:
        async with asyncio.timeout(TIMEOUT_S + 10):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, output.decode(errors="replace")


async def run_all(
    names: Iterable[str], run: Callable[[str], Awaitable[Result]], *, jobs: int, done: Callable[[Result], None]
) -> list[Result]:
    """Run scenarios, never more than `jobs` at a time, and tell of each as it ends."""
    free = asyncio.Semaphore(jobs)

    async def one(name: str) -> Result:
        async with free:
            result = await run(name)
        done(result)
        return result

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(name)) for name in names]
    return [task.result() for task in tasks]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The scenarios that are known to fail, or to be skipped by the suite itself, each with its reason."""

    failing: dict[str, str] = field(default_factory=dict[str, str])
    skipped: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def read(cls, subject: Subject) -> Self:
        """What `expected.toml` says."""
        return cls(**tomllib.loads((HERE / "expected.toml").read_text(encoding="utf-8"))[subject])


def surprises(results: Iterable[Result], expected: Expected) -> list[str]:
    """What did not go as `expected.toml` says: news of a failure, or a reason that no longer holds."""
    lines: list[str] = []
    for result in results:
        name, verdict = result.scenario, result.verdict
        if verdict == "failed" and name not in expected.failing:
            lines.append(f"{name} failed:\n{result.trouble.strip()}")
        elif verdict == "skipped" and name not in expected.skipped:
            lines.append(f"{name} was skipped by the suite: find out why, and write it into conformance/expected.toml")
        elif verdict == "passed" and name in {**expected.failing, **expected.skipped}:
            lines.append(f"{name} passes now: take it out of conformance/expected.toml")
    return lines


def summary(results: Sequence[Result], subject: Subject = "client") -> str:
    """The line at the end; it counts as the suite does, and says what that is worth."""
    count = sum(result.verdict != "failed" for result in results)
    idle = [result.scenario for result in results if result.verdict == "skipped"]
    note = f" ({len(idle)} of them with nothing but skipped checks: {', '.join(idle)})" if idle else ""
    return f"{TITLES[subject]}: {count} of {len(results)}{note}"


def table(results: Sequence[Result], expected: Expected) -> Table:
    """All results; names are shown whole."""
    shown = Table(box=SIMPLE_HEAD)
    shown.add_column("scenario", no_wrap=True, min_width=max((len(result.scenario) for result in results), default=0))
    for heading in ("verdict", "checks", "seconds"):
        shown.add_column(heading, no_wrap=True)
    for result in results:
        known = ", known" if result.verdict == "failed" and result.scenario in expected.failing else ""
        verdict = f"[{COLOURS[result.verdict]}]{result.verdict}{known}[/]"
        shown.add_row(result.scenario, verdict, f"{result.passed} of {result.checks}", f"{result.seconds:.1f}")
    return shown


async def conform(only: str, subjects: Sequence[Subject], *, jobs: int, keep: Path | None) -> int:
    """Run what matches and tell of it; 0 when all went as expected."""
    console = Console()
    lines: list[str] = []
    surprised = False
    for subject in subjects:
        results = await _run_subject(subject, only, console, jobs=jobs, keep=keep)
        expected = Expected.read(subject)
        console.print(table(results, expected))
        for line in surprises(results, expected):
            surprised = True
            console.print(line, markup=False, highlight=False)
        lines.append(summary(results, subject))
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 1 if surprised else 0


async def _run_subject(subject: Subject, only: str, console: Console, *, jobs: int, keep: Path | None) -> list[Result]:
    """Run the scenarios of one subject; those of servers one after the other, for they change what it lists."""
    names = [name for name in await list_scenarios(subject) if fnmatch(name, only)]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("scenarios", total=len(names))

        def done(result: Result) -> None:
            progress.update(bar, advance=1, description=result.scenario)

        if subject == "client":
            return await run_all(names, partial(run_scenario, keep=keep), jobs=jobs, done=done)
        async with server_under_test(subject) as url:
            return await run_all(names, partial(run_server_scenario, url=url, keep=keep), jobs=1, done=done)


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    parser.add_argument("only", nargs="?", default="*", help="the scenarios to run, with * and ? (all of them)")
    parser.add_argument("--subject", choices=SUBJECTS, action="append", help="what is tested (all three)")
    parser.add_argument("--jobs", type=int, default=2, help="scenarios of clients at a time (2)")
    parser.add_argument("--keep", type=Path, help="a folder for the suite's own records")
    given = parser.parse_args(arguments)
    return asyncio.run(conform(given.only, given.subject or SUBJECTS, jobs=given.jobs, keep=given.keep))
