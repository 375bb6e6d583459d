"""Earlier tasks and sessions: what was run on a day, what was said in it, and the archives."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.builtin.caller import Caller
from toolpost import Toolbox, tool
from toolpost.builtin.history import task_tools
from toolpost.builtin.session_archives import session_tools
from toolpost.configuration.settings import Settings
from toolpost.contracts.context import ToolContext
from toolpost.contracts.outcomes import Paused
from toolpost.contracts.storage import EventLog
from toolpost.stores.agent_records.task_logs import TaskLogs

TODAY = f"{datetime.now(UTC):%Y-%m-%d}"


@tool(side_effects="read")
async def add(a: int, b: int) -> dict[str, int]:
    """Add."""
    return {"sum": a + b}


@tool(side_effects="write", destructive=True)
async def drop(name: str) -> str:
    """Drop."""
    return name


FIRST_CALL = "UPDATE segments SET events = ? WHERE seq = 1 AND run = (SELECT nr FROM runs WHERE run_id = 't1')"


@asynccontextmanager
async def opened(data_dir: Path | None = None) -> AsyncGenerator[Toolbox]:
    async with Toolbox(tools=[add, drop], settings=Settings(data_dir=data_dir, builtins="none")) as box:
        await box.call("add", {"a": 1, "b": 2}, run_id="t1", user="acme:ann")
        await box.call("add", {"a": "x"}, run_id="t1", user="acme:ann")
        await box.call("add", {"a": 3, "b": 4}, run_id="t2", user="acme:ann")
        await box.call("add", {"a": 5, "b": 6}, run_id="t3", user="acme:bob")
        await box.call("add", {"a": 7, "b": 8}, run_id="t4", user="other:ann")
        yield box


def ann(box: Toolbox) -> Caller:
    caller = Caller(task_tools(box.store.events))
    caller.context = ToolContext(user_id="acme:ann", tenant_id="acme")
    return caller


@pytest.mark.req("PTASK-01", "PTASK-02", "PTASK-03")
async def test_earlier_tasks_are_data_and_earlier_sessions_belong_to_the_system() -> None:
    async with Toolbox(settings=Settings(data_dir=None, builtins=["task_tools", "session_tools"])) as box:
        categories = {spec.name: spec.category for spec in box.registry.specs()}

    assert categories == {"task_list": "data", "task_replay": "data", "session_archive_read": "system"}


@pytest.mark.req("PTASK-01")
@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
async def test_the_tasks_of_a_day_are_listed_the_newest_first(tmp_path: Path, on_disk: bool) -> None:
    async with opened(tmp_path if on_disk else None) as box:
        found = (await ann(box).ask("task_list", {})).result
        same = (await ann(box).ask("task_list", {"date": TODAY})).result
        before = (await ann(box).ask("task_list", {"date": "2020-02-29"})).result

    assert [(one["task_id"], one["status"], one["input_text"]) for one in found] == [
        ("t2", "completed", "add"),
        ("t1", "failed", "add"),
    ]
    assert found[0]["created_at"] > 1_600_000_000_000
    assert (same, before) == (found, [])


@pytest.mark.req("PTASK-02")
async def test_a_task_is_replayed_as_messages() -> None:
    async with opened() as box:
        found = await ann(box).do("task_replay", taskId="t1")

    asked, answered, wrong, failed = found["messages"]
    call = asked["tool_calls"][0]
    assert (asked["role"], call["name"], call["arguments"]) == ("assistant", "add", {"a": 1, "b": 2})
    assert answered == {"role": "tool", "tool_call_id": call["id"], "content": '{"sum": 3}'}
    assert wrong["tool_calls"][0]["arguments"] == {"a": "x"}
    assert "Parameter validation failed" in failed["content"]
    assert (found["status"], found["truncated"]) == ("failed", False)


@pytest.mark.req("PTASK-02")
async def test_questions_and_answers_are_part_of_it() -> None:
    async with opened() as box:
        paused = await box.call("drop", {"name": "x"}, run_id="t9", user="acme:ann")
        assert isinstance(paused, Paused)
        waiting = (await ann(box).ask("task_list", {})).result[0]
        await box.approve(paused.pending_id, by="acme:ann")
        found = await ann(box).do("task_replay", task_id="t9")

    assert (waiting["task_id"], waiting["status"]) == ("t9", "paused")
    assert [one["role"] for one in found["messages"]] == ["assistant", "system", "user", "tool"]
    assert "Allow drop?" in found["messages"][1]["content"]


@pytest.mark.parametrize("task_id", ["t3", "t4", "nothing"])
async def test_the_tasks_of_others_are_not_there(task_id: str) -> None:
    async with opened() as box:
        error = await ann(box).refused("task_replay", task_id=task_id)

    assert f'Task "{task_id}" not found in index' in error["message"]


@pytest.mark.parametrize("date", ["yesterday", "2026-13-01", ""])
async def test_what_is_no_day_is_refused(date: str) -> None:
    async with opened() as box:
        assert (await ann(box).refused("task_list", date=date))["error_code"] == "date_invalid"


@pytest.mark.req("PTASK-01", "PTASK-02")
async def test_another_data_folder_is_only_for_hosts_that_allow_it() -> None:
    asked: list[str] = []
    async with opened() as box, opened() as other:

        @asynccontextmanager
        async def open_log(data_dir: str) -> AsyncGenerator[EventLog]:
            asked.append(data_dir)
            yield other.store.events

        caller = Caller(task_tools(box.store.events, open_log=open_log))
        refused = await caller.refused("task_list", dataDir="/elsewhere")
        caller.context = ToolContext(tenant_id="acme", tool_context={"allow_data_dir_override": True})
        found = (await caller.ask("task_list", {"data_dir": "/elsewhere"})).result
        replayed = await caller.do("task_replay", task_id="t3", data_dir="/elsewhere")

    assert "Permission denied" in refused["message"]
    assert asked == ["/elsewhere", "/elsewhere"]
    assert {one["task_id"] for one in found} == {"t1", "t2", "t3"}
    assert replayed["status"] == "completed"


@pytest.mark.req("PTASK-01", "PTASK-02")
async def test_tasks_of_agents_are_listed_and_replayed_by_their_logs(tmp_path: Path) -> None:
    logs = TaskLogs(tmp_path)
    for task_id, user in (("t1", "acme:ann"), ("task_5", "acme:ann"), ("task_6", "acme:bob")):
        log = logs.create(task_id, user=user)
        log.append("TASK_CREATED", {"inputText": f"do {task_id}"}, [{"role": "user", "content": "do"}])
    async with opened() as box:
        caller = Caller(task_tools(box.store.events, folder=lambda tenant: str(tmp_path) if tenant == "acme" else None))
        caller.context = ToolContext(user_id="acme:ann", tenant_id="acme", trace_id="t2")
        found = (await caller.ask("task_list", {})).result
        replayed = await caller.do("task_replay", task_id="task_5")
        of_bob = await caller.refused("task_replay", task_id="task_6")

    assert {(one["task_id"], one["input_text"]) for one in found} == {("t1", "do t1"), ("task_5", "do task_5")}
    assert (replayed["status"], replayed["messages"]) == ("in_progress", [{"role": "user", "content": "do"}])
    assert of_bob["error_code"] == "task_not_found"


@pytest.fixture
def sessions(tmp_path: Path) -> Caller:
    (tmp_path / "sessions").mkdir()
    (tmp_path / "secret.jsonl").write_text("{}")
    (tmp_path / "sessions" / "current.jsonl").write_text("{}")
    (tmp_path / "sessions" / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (tmp_path / "sessions" / "20260225T143000.jsonl").write_text('{"ts": 1, "role": "user", "content": "hü"}\n')
    caller = Caller(session_tools())
    caller.context = ToolContext(session_dir=str(tmp_path / "sessions"))
    return caller


@pytest.mark.req("PTASK-03")
async def test_an_archived_session_is_read_as_it_is(sessions: Caller) -> None:
    result = await sessions.ask("session_archive_read", {"file": "20260225T143000.jsonl"})

    assert result.result == '{"ts": 1, "role": "user", "content": "hü"}\n'


@pytest.mark.req("PTASK-03")
@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("current.jsonl", "Cannot read current.jsonl — it is the active session, not an archive"),
        ("./current.jsonl", "it is the active session"),
        ("../secret.jsonl", 'Path "../secret.jsonl" escapes session directory'),
        ("/etc/passwd", 'Path "/etc/passwd" escapes session directory'),
        ("link.jsonl", "escapes session directory"),
        (".", "escapes session directory"),
        ("a\0b", "escapes session directory"),
        ("none.jsonl", "not found"),
    ],
)
async def test_what_is_no_archive_is_refused(sessions: Caller, file: str, said: str) -> None:
    assert said in (await sessions.refused("session_archive_read", file=file))["message"]


async def test_without_a_folder_for_sessions_the_configuration_is_wrong() -> None:
    error = await Caller(session_tools()).refused("session_archive_read", file="a.jsonl")

    assert error["error_code"] == "session_dir_missing"


@pytest.mark.usefixtures("one_segment_a_call")
@pytest.mark.parametrize("text", ["[broken", "[1]", "[[99999,1.0,{}]]"])
async def test_of_a_damaged_record_the_rest_is_replayed(tmp_path: Path, text: str) -> None:
    async with opened(tmp_path) as box:
        whole = await ann(box).do("task_replay", task_id="t1")
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        db.execute(FIRST_CALL, (text,))

    async with Toolbox(settings=Settings(data_dir=tmp_path, builtins="none")) as box:
        rest = await ann(box).do("task_replay", task_id="t1")

    assert (whole["damaged"], rest["damaged"]) == (False, True)
    assert rest["messages"] == whole["messages"][2:]
