"""Logs of tasks as JSON lines: what is written, who sees it, and what a crash leaves."""

import json
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from toolpost.stores.agent_records.json_lines import append_lines, read_lines
from toolpost.stores.agent_records.task_logs import TaskLogs

TODAY = datetime.now(UTC).date()
ANN, BOB = "acme:ann", "acme:bob"


def everybody(_: str) -> bool:
    return True


def test_a_task_is_an_index_line_and_a_file_of_events(tmp_path: Path) -> None:
    log = TaskLogs(tmp_path).create("task_1", user=ANN)
    log.append("TASK_CREATED", {"inputText": "count"}, [{"role": "user", "content": "count"}])
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    log.append("REASON_DONE", {}, [{"role": "assistant", "content": None, "tool_calls": [call]}])

    (index,) = read_lines(tmp_path / "index.jsonl", max_bytes=1000)
    created, reasoned = read_lines(tmp_path / TODAY.isoformat() / "task_1.jsonl", max_bytes=10_000)
    assert index == {"taskId": "task_1", "date": TODAY.isoformat(), "user": ANN}
    assert (created["event"], created["taskId"], created["data"]["inputText"]) == ("TASK_CREATED", "task_1", "count")
    assert created["ts"] > 1_600_000_000_000
    assert reasoned["data"]["newMessages"][0]["toolCalls"] == [{"id": "c1", "name": "add", "arguments": {"a": 1}}]
    assert stat.S_IMODE((tmp_path / "index.jsonl").stat().st_mode) == 0o600


def test_messages_come_back_as_they_were(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    said: list[dict[str, Any]] = [
        {"role": "user", "content": "count"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
    ]
    log = TaskLogs(tmp_path).create("task_1", user=ANN)
    for message in said:
        log.append("REASON_DONE", {}, [message])

    task = log.read()
    assert task is not None
    assert task.messages == said


def test_the_last_event_says_how_a_task_stands(tmp_path: Path) -> None:
    events = ("TASK_CREATED", "TASK_SUSPENDED", "TASK_RESUMED", "LEGACY_EVENT", "TASK_FAILED", "TASK_COMPLETED")
    log, seen = TaskLogs(tmp_path).create("t", user=ANN), list[str]()
    for event in events:
        log.append(event, {})
        task = log.read()
        assert task is not None
        seen.append(task.status)

    assert seen == ["in_progress", "paused", "in_progress", "in_progress", "failed", "completed"]


def test_the_tasks_of_others_are_not_seen(tmp_path: Path) -> None:
    logs = TaskLogs(tmp_path)
    for task_id, user in (("t1", ANN), ("t2", BOB), ("t3", ANN)):
        logs.create(task_id, user=user).append("TASK_CREATED", {"inputText": task_id})

    assert [task.task_id for task in logs.of_day(TODAY, may_see=ANN.__eq__)] == ["t3", "t1"]
    assert logs.find("t2", may_see=ANN.__eq__) is None
    assert logs.find("t2", may_see=BOB.__eq__) is not None


def test_a_torn_line_costs_no_other(tmp_path: Path) -> None:
    logs = TaskLogs(tmp_path)
    logs.create("t1", user=ANN).append("TASK_CREATED", {"inputText": "one"})
    path = tmp_path / TODAY.isoformat() / "t1.jsonl"
    with path.open("ab") as file:
        file.write(b'{"ts": 5, "event": "REASON_DO')
    found = logs.find("t1", may_see=everybody)
    assert found is not None

    found.append("TASK_COMPLETED", {})

    task = found.read()
    assert task is not None
    assert (task.status, task.input_text) == ("completed", "one")
    assert len(path.read_bytes().splitlines()) == 3


def test_an_index_that_others_wrote_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_text('{"event": "TASK_CREATED", "data": {"inputText": "secret"}}\n')
    lines: list[dict[str, Any]] = [
        {"taskId": "../secret", "date": TODAY.isoformat()},
        {"taskId": "secret", "date": ".."},
        {"taskId": 5, "date": TODAY.isoformat()},
    ]
    append_lines(tmp_path / "tasks" / "index.jsonl", lines)

    assert TaskLogs(tmp_path / "tasks").of_day(TODAY, may_see=everybody) == []


def test_what_is_written_is_redacted(tmp_path: Path) -> None:
    def mask(data: Any) -> Any:
        return json.loads(json.dumps(data).replace("hunter22", "[redacted]"))

    log = TaskLogs(tmp_path, mask).create("t1", user=ANN)
    log.append("TASK_CREATED", {"inputText": "use hunter22"}, [{"role": "user", "content": "use hunter22"}])

    assert b"hunter22" not in (tmp_path / TODAY.isoformat() / "t1.jsonl").read_bytes()


def test_of_a_file_that_is_too_long_the_end_is_read(tmp_path: Path) -> None:
    append_lines(tmp_path / "a.jsonl", [{"n": number} for number in range(100)])

    assert read_lines(tmp_path / "a.jsonl", max_bytes=40)[-1] == {"n": 99}
    assert len(read_lines(tmp_path / "a.jsonl", max_bytes=40)) < 5
