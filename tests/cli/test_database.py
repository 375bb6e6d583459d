"""`toolpost db` on SQLite: check, back up, restore and move, and what is refused."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.program import Run
from toolpost.stores.sqlite.database import MIGRATIONS

NEWEST = len(list(MIGRATIONS.glob("*.sql")))


@pytest.fixture
def waiting(toolpost: Run) -> str:
    """A question that waits when the database is backed up."""
    return str(toolpost("tools", "call", "local.wipe", "name=disk", "--json").json["pending"]["id"])


@pytest.fixture
def empty(home: Path, waiting: str) -> str:
    """A configuration with the same key and tools, and another data folder."""
    (home / "empty").mkdir()
    (home / "empty" / "key").write_bytes((home / ".toolpost" / "key").read_bytes())
    (home / "empty" / "key").chmod(0o600)
    text = (home / "toolpost.yaml").read_text()
    (home / "empty.yaml").write_text(f"{text}\ndata_dir: empty\n")
    return "--config=empty.yaml"


def test_a_new_database_is_migrated_and_an_old_one_is_left_alone(toolpost: Run) -> None:
    first, second = [toolpost("db", "migrate", "--json").json for _ in range(2)]

    assert (first["from"], first["to"] > 0) == (0, True)
    assert (second["from"], second["to"]) == (first["to"], first["to"])


def test_a_check_shows_the_version_and_rows_that_do_not_verify(toolpost: Run, home: Path, waiting: str) -> None:
    fine = toolpost("db", "check", "--verify", "--json")
    with closing(sqlite3.connect(home / ".toolpost" / "toolpost.db")) as db:
        db.execute("UPDATE runs SET user = 'eve'")
        db.commit()
    tampered = toolpost("db", "check", "--verify", "--json")

    assert (fine.code, fine.json["status"]) == (0, "ok")
    assert f"version {NEWEST} of {NEWEST}" in fine.json["checks"][0]["text"]
    assert (tampered.code, tampered.json["status"]) == (1, "failed")
    assert "was changed" in tampered.json["checks"][-1]["text"]


def test_a_check_finds_a_missing_table(toolpost: Run, home: Path, waiting: str) -> None:
    with closing(sqlite3.connect(home / ".toolpost" / "toolpost.db")) as db:
        db.execute("DROP TABLE cancels")

    checked = toolpost("db", "check", "--json")

    assert checked.code == 1
    assert "are missing: cancels; restore a backup" in checked.json["checks"][-1]["text"]


def test_a_check_reports_a_key_that_does_not_decrypt_the_data(toolpost: Run, home: Path, waiting: str) -> None:
    (home / ".toolpost" / "key").unlink()

    checked = toolpost("db", "check")

    assert checked.code == 1
    assert "was encrypted with another key" in checked.out


def test_a_restored_question_is_unknown_and_the_call_runs_only_if_a_person_says_so(
    toolpost: Run, waiting: str, empty: str
) -> None:
    saved = toolpost("db", "backup", "backup.zip", "--json")
    toolpost("pending", "approve", waiting)
    restored = toolpost("db", "restore", "backup.zip", empty, "--json")
    [question] = toolpost("pending", "list", empty, "--json").json
    settled = toolpost("pending", "answer", question["id"], "--decision", "happened", empty, "--json")

    assert (saved.code, saved.json["rows"]["pending"]) == (0, 1)
    assert (restored.code, restored.json["interrupted"], restored.json["problems"]) == (0, 1, [])
    assert (question["kind"], question["arguments"]) == ("unknown", {"name": "disk"})
    assert (settled.code, settled.json["status"]) == (0, "completed")
    assert "DATABASE_RESTORED" in toolpost("events", empty).out


def test_the_next_steps_are_shown(toolpost: Run, waiting: str, empty: str) -> None:
    saved = toolpost("db", "backup", ".")
    file = saved.out.partition(": ")[0]
    restored = toolpost("db", "restore", file, empty)

    assert "The encryption key is not in it." in saved.err
    assert "`toolpost pending list --config empty.yaml`" in restored.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("backup", "backup.zip"), "exists; name another file"),
        (("backup", "none/backup.zip"), "cannot be written: No such file or directory"),
        (("restore", "none.zip"), "cannot be read: No such file or directory"),
        (("restore", "toolpost.yaml"), "is damaged or incomplete"),
        (("restore", "backup.zip"), "is not empty: it contains"),
        (("move", "--to", "sqlite"), "name another database"),
        (("move", "--to", "memory"), "memory has nothing that could be"),
        (("move", "--to", "env:NO_SUCH_NAME"), "NO_SUCH_NAME is not set"),
    ],
)
def test_an_impossible_request_is_refused_with_the_reason(
    toolpost: Run, waiting: str, arguments: tuple[str, ...], reason: str
) -> None:
    toolpost("db", "backup", "backup.zip")

    refused = toolpost("db", *arguments, "--json")

    assert refused.code == 1
    assert reason in refused.json["error"]["message"]
