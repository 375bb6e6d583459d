"""Calls that wait for a person: asked, answered exactly once, and finished by the answer."""

import asyncio
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.life_of_a_call.conftest import MakeBox
from toolpost import Completed, EventCode, Failed, Paused, PendingAction, Settings, Toolbox, ToolContext, tool
from toolpost.contracts.events import RunEvent
from toolpost.errors import PendingNotFoundError, ToolApprovalDenied, ToolConflictError, ToolValidationError
from toolpost.stores.sqlite import store as sqlite

ANN, BOB, EVE = "acme:ann", "acme:bob", "rival:eve"
deleted: list[str] = []


@pytest.fixture(autouse=True)
def _clean() -> None:
    deleted.clear()


@tool(side_effects="write", destructive=True)
async def delete(path: str) -> str:
    """Delete a file."""
    deleted.append(path)
    return f"deleted {path}"


@pytest.mark.req("NAPP-01", "NAPP-02")
async def test_a_destructive_call_waits_and_runs_when_a_person_says_yes(make_box: MakeBox) -> None:
    async with make_box(delete) as box:
        paused = await box.call("delete", {"path": "a"}, user=ANN)
        assert isinstance(paused, Paused)
        assert deleted == []
        done = await box.approve(paused.pending_id, by=BOB)
        told = await box.events(user=ANN, run_id=paused.run_id)
    assert isinstance(done, Completed)
    assert (done.content, done.call_id, deleted) == ("deleted a", paused.call_id, ["a"])
    assert [e.code for e in told] == [
        EventCode.TOOL_CALL_REQUESTED,
        EventCode.APPROVAL_REQUESTED,
        EventCode.APPROVAL_GRANTED,
        EventCode.TOOL_CALL_STARTED,
        EventCode.TOOL_CALL_COMPLETED,
    ]
    assert told[2].payload["by"] == BOB


async def test_a_denied_call_never_runs_and_the_reason_is_reported(make_box: MakeBox) -> None:
    async with make_box(delete) as box:
        paused = await box.call("delete", {"path": "a"}, user=ANN)
        denied = await box.deny(paused.pending_id, by=BOB, reason="too risky")
        told = [event.code for event in await box.events(user=ANN, run_id=paused.run_id)]
    assert isinstance(denied.error, ToolApprovalDenied)
    assert str(denied.error).startswith("Permission denied:")
    assert "too risky" in str(denied.error)
    assert deleted == []
    assert told[-2:] == [EventCode.APPROVAL_DENIED, EventCode.TOOL_CALL_FAILED]


async def test_changed_arguments_are_validated_again_and_then_run(make_box: MakeBox) -> None:
    async with make_box(delete) as box:
        paused = await box.call("delete", {"path": "a"}, user=ANN)
        with pytest.raises(ToolValidationError):
            await box.approve(paused.pending_id, by=BOB, changes=[{"op": "replace", "path": "/path", "value": 5}])
        (still,) = await box.pending.list(by=BOB)
        assert still.id == paused.pending_id
        done = await box.approve(paused.pending_id, by=BOB, changes=[{"op": "replace", "path": "/path", "value": "b"}])
    assert done.content == "deleted b"
    assert deleted == ["b"]


async def test_of_many_answers_at_once_exactly_one_counts(make_box: MakeBox) -> None:
    async with make_box(delete) as box:
        paused = await box.call("delete", {"path": "a"}, user=ANN)
        answers = [box.approve(paused.pending_id, by=BOB) for _ in range(8)]
        results = await asyncio.gather(*answers, return_exceptions=True)
        with pytest.raises(ToolConflictError, match="already answered"):
            await box.deny(paused.pending_id, by=BOB)
    assert sum(isinstance(result, Completed) for result in results) == 1
    assert sum(isinstance(result, ToolConflictError) for result in results) == 7
    assert deleted == ["a"]


async def test_a_person_of_another_tenant_cannot_even_see_the_question(make_box: MakeBox) -> None:
    async with make_box(delete) as box:
        paused = await box.call("delete", {"path": "a"}, user=ANN)
        assert await box.pending.list(by=EVE) == []
        with pytest.raises(PendingNotFoundError) as of_other:
            await box.approve(paused.pending_id, by=EVE)
        with pytest.raises(PendingNotFoundError) as of_nothing:
            await box.approve("ask_nothing", by=EVE)
    assert str(of_other.value).replace(paused.pending_id, "ID") == str(of_nothing.value).replace("ask_nothing", "ID")
    assert deleted == []


async def test_a_question_that_expires_is_a_no(make_box: MakeBox) -> None:
    async with make_box(delete, limits={"pending_ttl": 0.01}) as box:
        paused = await box.call("delete", {"path": "a"}, user=ANN)
        await asyncio.sleep(0.02)
        with pytest.raises(ToolConflictError, match="expired"):
            await box.approve(paused.pending_id, by=BOB)
        await box.recovery.sweep()
        told = [event.code for event in await box.events(user=ANN, run_id=paused.run_id)]
    assert told[-2:] == [EventCode.QUESTION_EXPIRED, EventCode.TOOL_CALL_FAILED]
    assert deleted == []


async def test_the_application_is_notified_and_a_failing_sink_harms_nothing(make_box: MakeBox) -> None:
    heard: list[PendingAction] = []

    def sink(action: PendingAction) -> None:
        heard.append(action)
        raise RuntimeError("the application's own trouble")

    async with make_box(delete, on_pending=sink) as box:
        paused = await box.call("delete", {"path": "a"}, user=ANN)
        assert paused.status == "paused"
        assert (await box.approve(paused.pending_id, by=BOB)).status == "completed"
    assert [action.id for action in heard] == [paused.pending_id]


async def test_what_the_caller_holds_gives_no_right(make_box: MakeBox) -> None:
    async with make_box(delete) as box:
        paused = await box.call("delete", {"path": "a"}, user=ANN)
        again = await box.call("delete", {"path": "a"}, user=ANN, run_id=paused.run_id)
    assert again.status == "paused"
    known = {"call_id", "run_id", "tool_name", "pending_id", "question", "duration_ms", "inside"}
    assert set(paused.__struct_fields__) == known
    assert paused.inside == ()  # of calls inside: the same, an address and a question
    assert deleted == []


@pytest.mark.req("STATE-08")
async def test_a_tool_can_ask_twice_and_its_steps_run_once(make_box: MakeBox) -> None:
    steps: list[str] = []

    @tool(side_effects="write")
    async def book(ctx: ToolContext) -> dict[str, Any]:
        async def reserve() -> str:
            steps.append("reserve")
            return "R1"

        reservation = await ctx.once("reserve", reserve)
        seat = await ctx.pause("await_input", {"prompt": "Which seat?"})
        meal = await ctx.pause("await_input", {"prompt": "Which meal?"})
        return {"reservation": reservation, "seat": seat, "meal": meal}

    async with make_box(book) as box:
        first = await box.call("book", user=ANN)
        assert first.question.prompt == "Which seat?"
        second = await box.answer(first.pending_id, "12A", by=ANN)
        assert second.question.prompt == "Which meal?"
        done = await box.answer(second.pending_id, "soup", by=ANN)
        told = [event.code.value for event in await box.events(user=ANN, run_id=first.run_id)]
    assert done.content == {"reservation": "R1", "seat": "12A", "meal": "soup"}
    assert steps == ["reserve"]
    assert told == [400, 405, 440, 441, 440, 441, 410]


async def test_a_pause_is_not_swallowed_by_a_tool_that_catches_everything(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    async def careless(ctx: ToolContext) -> Any:
        try:
            return await ctx.pause("await_input")
        except Exception:  # noqa: BLE001 - what careless tools do
            return "swallowed"

    async with make_box(careless) as box:
        paused = await box.call("careless", user=ANN)
        assert (await box.answer(paused.pending_id, "yes", by=ANN)).content == "yes"


async def test_nothing_is_held_while_a_call_waits(make_box: MakeBox) -> None:
    @tool(side_effects="read", max_concurrency=1)
    async def ask(n: int, ctx: ToolContext) -> int:
        return n + int(await ctx.pause("await_input"))

    async with make_box(ask) as box:
        first = await box.call("ask", {"n": 1}, user=ANN, timeout_s=1)
        second = await box.call("ask", {"n": 2}, user=ANN, timeout_s=1)
        assert (await box.answer(second.pending_id, 10, by=ANN)).content == 12
        assert (await box.answer(first.pending_id, 10, by=ANN)).content == 11


async def test_the_wrong_kind_of_answer_is_refused_and_the_question_stays(make_box: MakeBox) -> None:
    async with make_box(delete) as box:
        paused = await box.call("delete", {"path": "a"}, user=ANN)
        with pytest.raises(ToolValidationError, match="approve, deny"):
            await box.answer(paused.pending_id, "sure", by=BOB)
        assert (await box.approve(paused.pending_id, by=BOB)).status == "completed"


async def test_a_cancelled_run_closes_its_question(make_box: MakeBox) -> None:
    async with make_box(delete) as box:
        paused = await box.call("delete", {"path": "a"}, user=ANN)
        assert await box.cancel(paused.run_id, by=ANN)
        with pytest.raises(ToolConflictError, match="cancelled"):
            await box.approve(paused.pending_id, by=BOB)
        run = await box.run(paused.run_id, user=ANN)
    assert run is not None
    assert run.status == "failed"
    assert deleted == []


async def test_another_process_with_the_same_folder_can_answer(disk_box: MakeBox) -> None:
    async with disk_box(delete) as first:
        paused = await first.call("delete", {"path": "a"}, user=ANN)
    async with disk_box(delete) as second:
        done = await second.approve(paused.pending_id, by=BOB)
        told = await second.events(user=ANN, run_id=paused.run_id)
        assert await second.store.events.verify(paused.run_id) == []
    assert done.content == "deleted a"
    assert [event.seq for event in told] == [1, 2, 3, 4, 5]


async def test_a_tool_that_changed_since_it_was_asked_is_not_run(disk_box: MakeBox) -> None:
    async with disk_box(delete) as first:
        paused = await first.call("delete", {"path": "a"}, user=ANN)

    @tool(name="delete", desc="Delete a file and its folder.", side_effects="write", destructive=True)
    async def other(path: str) -> str:
        deleted.append(f"everything around {path}")
        return "gone"

    async with disk_box(other) as second:
        with pytest.raises(ToolConflictError, match="has changed since"):
            await second.approve(paused.pending_id, by=BOB)
    assert deleted == []


@pytest.mark.sqlite
async def test_pending_arguments_are_not_readable_in_the_data_folder(disk_box: MakeBox, tmp_path: Any) -> None:
    async with disk_box(delete) as box:
        await box.call("delete", {"path": "a-very-private-path"}, user=ANN)
        await box.store.events.flush()
    with closing(sqlite3.connect(tmp_path / "data" / "toolpost.db")) as db:
        db.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))  # the log of the database may have a page twice
    encrypted = (tmp_path / "copy.db").read_bytes()
    assert b"a-very-private-path" in encrypted  # the event tells the arguments, redacted by name and value
    assert encrypted.count(b"a-very-private-path") == 2  # once when it was called, once when a person was asked


@pytest.mark.parametrize("fails", [False, True])
async def test_a_coroutine_is_notified_of_a_question_too(
    make_box: MakeBox, caplog: pytest.LogCaptureFixture, *, fails: bool
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def post(action: PendingAction) -> None:
        await asyncio.sleep(0)
        heard.put_nowait(action.id)
        if fails:
            raise ValueError("nobody is there")

    async with make_box(delete, on_pending=post) as box:
        paused = await box.call("delete", {"path": "a"}, user=ANN)
        async with asyncio.timeout(20):
            assert await heard.get() == paused.pending_id
        outcome = await box.approve(paused.pending_id, by=BOB)
    assert outcome.status == "completed"
    assert ("on_pending failed" in caplog.text) == fails


class LockTaker:
    """A sink that holds the database as soon as somebody says yes, like a program that browses it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "data" / "toolpost.db"
        self._other: sqlite3.Connection | None = None

    def emit(self, event: RunEvent) -> None:
        if event.code is EventCode.APPROVAL_GRANTED and self._other is None:
            self._other = sqlite3.connect(self._path, isolation_level=None)
            self._other.execute("BEGIN IMMEDIATE")

    def let_go(self) -> None:
        assert self._other is not None
        self._other.close()


@pytest.mark.sqlite
@pytest.mark.waits
async def test_a_yes_that_could_not_be_followed_because_the_database_was_locked_can_be_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "open_sqlite_store", partial(sqlite.open_sqlite_store, busy_s=0.05))
    taker = LockTaker(tmp_path)
    async with Toolbox(tools=[delete], settings=Settings(data_dir=tmp_path / "data"), sinks=[taker]) as box:
        paused = await box.call("delete", {"path": "a"}, user=ANN)
        assert isinstance(paused, Paused)
        refused = await box.approve(paused.pending_id, by=BOB)
        taker.let_go()
        async with asyncio.timeout(30):
            while not await box.pending.list(by=BOB):
                await asyncio.sleep(0.01)
        done = await box.approve(paused.pending_id, by=BOB)
        told = [event.code.value for event in await box.events(user=ANN, run_id=paused.run_id)]
        assert await box.store.events.verify() == []
    assert isinstance(refused, Failed)
    assert "nothing was run, and the question is open again" in str(refused.error)
    assert (done.status, deleted) == ("completed", ["a"])
    assert told == [400, 430, 431, 405, 430, 431, 405, 410]


async def test_a_tool_that_runs_again_after_a_pause_gets_what_came_of_its_calls(make_box: MakeBox) -> None:
    @tool(side_effects="write")
    async def book(what: str) -> str:
        """Book something."""
        deleted.append(what)
        return f"booked {what}"

    @tool(side_effects="write")
    async def plan(ctx: ToolContext) -> list[str]:
        """Book, ask, and book again."""
        first = await ctx.call("book", {"what": "a room"})
        answer = await ctx.pause("and then?")
        second = await ctx.call("book", {"what": answer})
        return [outcome.content for outcome in (first, second) if isinstance(outcome, Completed)]

    async with make_box(book, plan) as box:
        paused = await box.call("plan", user=ANN)
        done = await box.answer(paused.pending_id, "a room", by=ANN)

    assert done.content == ["booked a room"] * 2
    assert deleted == ["a room"] * 2
