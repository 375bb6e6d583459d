"""Commands that do too much, take too long or leave something behind, seen from the front door."""

import asyncio
import sys
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.sources.commands.programs import box_of, script, source
from toolpost.contracts.errors import ToolClientError
from toolpost.contracts.events import EventCode
from toolpost.errors import ToolConnectionError, ToolTimeoutError
from toolpost.events import RunEvent

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="that nothing stays is promised on Linux"),
    pytest.mark.programs,
]


class Sink:
    """Keeps what is told of progress."""

    def __init__(self) -> None:
        self.progress: list[str] = []

    def emit(self, event: RunEvent) -> None:
        if event.code is EventCode.SUBAGENT_ACTION:
            self.progress.append(event.facts["text"])


def marked(mark: str) -> list[int]:
    return [one.pid for one in psutil.process_iter(["cmdline"]) if mark in (one.info["cmdline"] or [])]


async def started(mark: str, count: int = 1) -> None:
    async with asyncio.timeout(30):
        while len(marked(mark)) < count:
            await asyncio.sleep(0.01)


async def gone(mark: str) -> None:
    """Nothing of it is left; on a busy machine a call may be given up before its command has fully begun."""
    async with asyncio.timeout(30):
        while marked(mark):
            await asyncio.sleep(0.05)


NEVER_ENDS = (
    "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' sh $1 & while :; do sleep 0.1; done"
)


async def test_a_call_that_is_out_of_time_leaves_nothing_running(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    async with box_of(source(script(tmp_path, NEVER_ENDS), {"run": {"args": [mark]}}, timeout_s=1.0)) as box:
        outcome = await box.call("cmd.run", {})
        await gone(mark)
    assert isinstance(outcome.error, ToolTimeoutError)


async def test_a_call_that_is_cancelled_leaves_nothing_running(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    async with box_of(source(script(tmp_path, NEVER_ENDS), {"run": {"args": [mark]}})) as box:
        call = asyncio.create_task(box.call("cmd.run", {}))
        await started(mark, 2)
        call.cancel()
        await asyncio.wait({call})
        assert marked(mark) == []


async def test_a_box_that_is_closed_leaves_nothing_running(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    async with box_of(source(script(tmp_path, NEVER_ENDS), {"run": {"args": [mark]}})) as box:
        call = asyncio.create_task(box.call("cmd.run", {}))
        await started(mark, 2)
    await asyncio.wait({call})
    assert marked(mark) == []


async def test_what_a_command_leaves_in_the_background_ends_with_it(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    program = script(tmp_path, "setsid sh -c 'while :; do sleep 0.1; done' sh $1 & echo started")
    async with box_of(source(program, {"run": {"args": [mark]}})) as box:
        outcome = await box.call("cmd.run", {})
        assert marked(mark) == []
    assert outcome.content == "started"


async def test_a_flood_is_ended_with_an_error() -> None:
    mark = uuid.uuid4().hex
    async with box_of(source("yes", {"run": {"args": [mark]}}, options={"max_output_bytes": 100_000})) as box:
        outcome = await box.call("cmd.run", {})
        assert marked(mark) == []
    assert isinstance(outcome.error, ToolClientError)
    assert outcome.error.error_code == "output_too_large"


async def test_a_program_that_goes_away_is_not_called_again(tmp_path: Path) -> None:
    program = script(tmp_path, "echo here")
    async with box_of(source(program, {"run": {}})) as box:
        here = await box.call("cmd.run", {})
        Path(program).unlink()
        gone = await box.call("cmd.run", {})
    assert here.content == "here"
    assert isinstance(gone.error, ToolConnectionError)
    assert "was not found" in str(gone.error)
    assert not gone.error.is_retryable


# ---------------------------------------------------------------- what is told meanwhile


def telling(connection: str, tool: dict[str, Any], **options: Any) -> tuple[Any, Sink]:
    sink = Sink()
    return box_of(source(connection, {"run": tool}, **options), sinks=[sink]), sink


async def test_the_lines_of_a_long_command_are_progress_while_it_runs(tmp_path: Path) -> None:
    waits = "echo working; echo t0ken >&2; while [ ! -e go ]; do sleep 0.05; done; echo done"
    box, sink = telling(script(tmp_path, waits), {}, cwd=str(tmp_path), env={"API_TOKEN": "t0ken"})
    async with box:
        call = asyncio.create_task(box.call("cmd.run", {}))
        async with asyncio.timeout(30):
            while len(sink.progress) < 2:
                await asyncio.sleep(0.01)
        before = sorted(sink.progress)
        (tmp_path / "go").touch()
        outcome = await call
    assert before == ["[redacted]", "working"]
    assert outcome.content == "working\ndone"


async def test_a_secret_of_several_lines_is_not_reported_line_by_line(tmp_path: Path) -> None:
    key = "-----BEGIN KEY-----\nMIIEabcdefghijklmnop\n-----END KEY-----"
    box, sink = telling(script(tmp_path, 'echo "$PRIVATE_KEY" >&2; echo end >&2'), {}, env={"PRIVATE_KEY": key})
    async with box:
        await box.call("cmd.run", {})
    assert sink.progress == ["[redacted]", "[redacted]", "[redacted]", "end"]


@pytest.mark.parametrize("output", ["json", "bytes"])
async def test_a_result_in_one_piece_is_not_reported_line_by_line(tmp_path: Path, output: str) -> None:
    box, sink = telling(script(tmp_path, "echo '{'; echo a >&2; sleep 0.4; echo '}'"), {"output": output})
    async with box:
        await box.call("cmd.run", {})
    assert sink.progress == ["a"]


async def test_a_short_command_tells_only_what_it_complains_of(tmp_path: Path) -> None:
    box, sink = telling(script(tmp_path, "echo result; echo careful >&2"), {})
    async with box:
        outcome = await box.call("cmd.run", {})
    assert outcome.content == "result"
    assert "careful" in sink.progress


async def test_a_flood_of_lines_is_no_flood_of_events(tmp_path: Path) -> None:
    box, sink = telling(script(tmp_path, "timeout 1 yes $(head -c 1000 /dev/zero | tr '\\0' x) >&2; sleep 0.2"), {})
    async with box:
        outcome = await box.call("cmd.run", {})
    assert outcome.status == "completed"
    assert 10 < len(sink.progress) < 60
    assert max(map(len, sink.progress)) < 600
    assert any("earlier lines are omitted" in text for text in sink.progress)
