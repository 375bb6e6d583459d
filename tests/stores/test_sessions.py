"""Sessions: kept line by line, archived whole, repaired after a crash."""

import json
from pathlib import Path
from typing import Any

import pytest

from toolpost.contracts.errors import ConfigError
from toolpost.stores.agent_records.sessions import SessionFile

CALL = {"id": "c1", "type": "function", "function": {"name": "reply", "arguments": '{"text": "hi"}'}}
USER: dict[str, Any] = {"role": "user", "content": "hello"}
ASKED: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
DONE: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "content": "ok"}


def reopened(folder: Path) -> list[dict[str, Any]]:
    session = SessionFile(folder)
    try:
        return session.open()
    finally:
        session.close()


def kept(folder: Path, *messages: dict[str, Any]) -> None:
    session = SessionFile(folder)
    session.open()
    session.append(messages)
    session.close()


def test_a_session_continues_where_it_ended(tmp_path: Path) -> None:
    kept(tmp_path, USER, ASKED, DONE)

    assert reopened(tmp_path) == [USER, ASKED, DONE]
    line = json.loads((tmp_path / "current.jsonl").read_text().splitlines()[1])
    assert line["toolCalls"] == [{"id": "c1", "name": "reply", "arguments": {"text": "hi"}}]


def test_compaction_archives_the_session_and_begins_with_a_summary(tmp_path: Path) -> None:
    session = SessionFile(tmp_path)
    session.open()
    session.append([USER])
    (opening,) = session.compact("they said hello")
    session.append([ASKED, DONE])
    session.compact("and were answered")
    session.close()

    archives = sorted(path.name for path in tmp_path.glob("2*.jsonl"))
    assert len(archives) == 2
    previous = opening["metadata"]["previousSession"]
    assert opening["metadata"] == {"type": "compact", "previousSession": previous}
    assert json.loads((tmp_path / previous).read_text())["content"] == "hello"
    assert [message["content"] for message in reopened(tmp_path)] == ["and were answered"]


@pytest.mark.parametrize("killed_after_the_archive", [False, True])
def test_a_compaction_that_was_cut_off_loses_nothing(tmp_path: Path, killed_after_the_archive: bool) -> None:
    kept(tmp_path, USER)
    (tmp_path / "current.next").write_text('{"ts": 1, "role": "system", "content": "summary"}\n')
    if killed_after_the_archive:
        (tmp_path / "current.jsonl").rename(tmp_path / "20260225T143000.jsonl")

    messages = reopened(tmp_path)

    assert messages[0]["content"] == ("summary" if killed_after_the_archive else "hello")
    assert not (tmp_path / "current.next").exists()


def test_a_session_belongs_to_one_agent_at_a_time(tmp_path: Path) -> None:
    session = SessionFile(tmp_path)
    session.open()

    with pytest.raises(ConfigError, match="another agent"):
        SessionFile(tmp_path).open()
    session.close()
    reopened(tmp_path)


def test_a_torn_line_and_a_line_that_is_no_message_are_passed_over(tmp_path: Path) -> None:
    kept(tmp_path, USER)
    with (tmp_path / "current.jsonl").open("ab") as file:
        file.write(b'{"role": "robot"}\n{"ts": 2, "role": "assi')

    kept(tmp_path, {"role": "user", "content": "again"})

    assert [message["content"] for message in reopened(tmp_path)] == ["hello", "again"]
