"""Removal of agents' files: by age, and with the person they belong to."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from toolpost import Settings, Toolbox
from toolpost.contracts.principal import Principal
from toolpost.stores.agent_records.files import AgentFiles
from toolpost.stores.agent_records.folders import TASK_FOLDER, USER_MEMORY, session_folder, tenant_folder, user_folder
from toolpost.stores.agent_records.json_lines import append_lines, read_lines
from toolpost.stores.agent_records.sessions import SessionFile
from toolpost.stores.agent_records.task_logs import INDEX, TaskLogs

ANN, BEN, EVE = Principal("local", "ann"), Principal("local", "ben"), Principal("acme", "ann")
LONG_AGO = (datetime.now(UTC) - timedelta(days=30)).timestamp()
A_WEEK_AGO = (datetime.now(UTC) - timedelta(days=7)).timestamp()


def logs_of(data_dir: Path, who: Principal) -> TaskLogs:
    return TaskLogs(tenant_folder(data_dir, TASK_FOLDER, who.tenant))


def add_task(data_dir: Path, who: Principal, task_id: str, last: str = "TASK_COMPLETED") -> None:
    log = logs_of(data_dir, who).create(task_id, user=str(who))
    log.append("TASK_CREATED", {"inputText": f"for {who.user}"})
    log.append(last, {})


def add_session(data_dir: Path, who: Principal) -> SessionFile:
    session = SessionFile(session_folder(data_dir, who))
    session.open()
    session.append([{"role": "user", "content": f"I am {who.user}"}])
    session.compact(f"{who.user} was there")
    return session


def add_memory(data_dir: Path, who: Principal) -> None:
    for name in ("facts/me.md", ".history/facts/me.md/1.md"):
        path = user_folder(data_dir, USER_MEMORY, who) / name
        path.parent.mkdir(parents=True)
        path.write_text(f"I am {who.user}")


def make_old(folder: Path) -> None:
    for path in folder.rglob("*.jsonl"):
        os.utime(path, (LONG_AGO, LONG_AGO))


def task_ids(data_dir: Path, who: Principal) -> list[str]:
    return [task.task_id for task in logs_of(data_dir, who).newest(9, may_see=lambda _: True)]


async def test_the_task_logs_and_sessions_of_a_person_go_and_nothing_of_others(tmp_path: Path) -> None:
    for who in (ANN, BEN, EVE):
        add_task(tmp_path, who, f"task_{who.tenant}_{who.user}")
        add_session(tmp_path, who).close()
        add_memory(tmp_path, who)

    files = AgentFiles(tmp_path)

    assert await files.forget(ANN) == {"tasks": 1, "sessions": 2, "memory": 1, "under_way": 0}
    left = "".join(path.read_text() + str(path) for path in (tmp_path / "tasks").rglob("*.jsonl"))
    assert "local:ann" not in left
    assert "task_local_ann" not in left
    assert not session_folder(tmp_path, ANN).exists()
    assert (task_ids(tmp_path, BEN), task_ids(tmp_path, EVE)) == (["task_local_ben"], ["task_acme_ann"])
    assert all((session_folder(tmp_path, who) / "current.jsonl").exists() for who in (BEN, EVE))
    assert [user_folder(tmp_path, USER_MEMORY, who).exists() for who in (ANN, BEN, EVE)] == [False, True, True]
    assert await files.forget(ANN) == {"tasks": 0, "sessions": 0, "memory": 0, "under_way": 0}


async def test_a_session_that_an_agent_has_open_is_left_to_it_and_counted(tmp_path: Path) -> None:
    session = add_session(tmp_path, ANN)
    for number, last in enumerate(["TASK_COMPLETED", "TASK_SUSPENDED", "TASK_STARTED"]):
        add_task(tmp_path, ANN, f"task_{number}", last)
    files = AgentFiles(tmp_path)

    assert await files.forget(ANN) == {"tasks": 1, "sessions": 1, "memory": 0, "under_way": 1}  # its archive
    assert task_ids(tmp_path, ANN) == ["task_2", "task_1"]
    session.append([{"role": "user", "content": "Are you there?"}])
    session.close()

    assert await files.forget(ANN) == {"tasks": 2, "sessions": 1, "memory": 0, "under_way": 0}
    assert not session_folder(tmp_path, ANN).exists()


async def test_old_files_go_but_for_tasks_that_wait_and_sessions_that_are_open(tmp_path: Path) -> None:
    for number, last in enumerate(["TASK_COMPLETED", "TASK_SUSPENDED", "TASK_FAILED"]):
        add_task(tmp_path, ANN, f"task_{number}", last)
    add_task(tmp_path, EVE, "task_eve")
    add_session(tmp_path, EVE).close()
    held = add_session(tmp_path, BEN)
    make_old(tmp_path)
    add_task(tmp_path, ANN, "task_new")

    removed = await AgentFiles(tmp_path).prune(A_WEEK_AGO)

    assert removed == {"tasks": 3, "sessions": 3}
    assert task_ids(tmp_path, ANN) == ["task_new", "task_1"]
    assert not session_folder(tmp_path, EVE).exists()
    assert [path.name for path in held.folder.glob("*.jsonl")] == ["current.jsonl"]
    held.close()


async def test_a_session_begins_again_in_a_folder_that_was_removed(tmp_path: Path) -> None:
    add_session(tmp_path, ANN).close()
    await AgentFiles(tmp_path).forget(ANN)

    session = SessionFile(session_folder(tmp_path, ANN))

    assert session.open() == []
    session.close()


def test_erased_lines_leave_their_neighbours_and_later_writers_alone(tmp_path: Path) -> None:
    index = tmp_path / TASK_FOLDER / INDEX
    for number in range(3):
        add_task(tmp_path, BEN if number else ANN, f"task_{number}")
    before = index.stat().st_size

    logs_of(tmp_path, ANN).forget(str(ANN))
    append_lines(index, [{"taskId": "task_9", "date": "2026-11-17", "user": "local:ben"}])

    assert [line["taskId"] for line in read_lines(index, max_bytes=None)] == ["task_1", "task_2", "task_9"]
    assert index.stat().st_size > before


@pytest.mark.parametrize("database", ["sqlite", "memory"])
@pytest.mark.parametrize("forget", [True, False])
async def test_a_toolbox_removes_them_with_the_rows_of_any_store(
    tmp_path: Path, *, forget: bool, database: str
) -> None:
    settings = Settings(data_dir=tmp_path, database=database, retention={"max_age": "1d"})
    async with Toolbox(settings=settings) as box:
        add_task(tmp_path, ANN, "task_1")
        add_session(tmp_path, ANN).close()
        make_old(tmp_path)
        removed = await (box.recovery.data.forget(ANN) if forget else box.recovery.prune())

    assert (removed["tasks"], removed["sessions"]) == (1, 2)
