"""`toolpost doctor` and `toolpost config check`: what is well, what is not, and no trace of having looked."""

import sqlite3
from pathlib import Path

import pytest

from tests.cli.program import Done, Run

BROKEN_SOURCE = """
sources:
  - {name: local, transport: python, connection: ./tools.py}
  - {name: odd, transport: python, connection: ./gone.py}
  - {name: idle, transport: python, connection: ./gone.py, enabled: false}
"""


def checks(done: Done) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in done.json["checks"]}


@pytest.mark.req("NRT-05")
def test_a_healthy_folder_is_told_to_be_well(toolpost: Run, home: Path) -> None:
    toolpost("tools", "call", "local.wipe", "--args", '{"name": "disk"}')

    done = toolpost("doctor", "--json")

    found = checks(done)
    assert (done.code, done.json["status"]) == (0, "ok")
    assert {"python", "sqlite", "platform", "configuration", "data folder", "database", "key file"} <= set(found)
    assert found["key file"]["detail"].endswith("(mode 0600)")
    assert found["database"]["detail"].startswith("version ")
    assert "python, 8 tools" in found["source local"]["detail"]
    assert "All checks passed." in toolpost("doctor").err


def test_looking_leaves_no_trace(toolpost: Run, home: Path) -> None:
    before = sorted(home.iterdir())

    assert toolpost("doctor", "--json").code == 0
    assert toolpost("config", "check", "--connect", "--json").code == 0

    assert [path for path in sorted(home.iterdir()) if path.name != "__pycache__"] == before


def test_memory_is_a_place_too(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").write_text("data_dir: null\n")

    assert checks(toolpost("doctor", "--json"))["data folder"]["state"] == "note"


@pytest.mark.req("NRT-05")
def test_a_source_that_fails_is_shown_with_its_reason(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").write_text(BROKEN_SOURCE)

    done = toolpost("doctor", "--json")

    assert done.code == 1
    assert checks(done)["source odd"]["state"] == "broken"
    assert "gone.py" in checks(done)["source odd"]["detail"]
    assert "A check failed" in toolpost("doctor").err


def test_a_wrong_configuration_is_one_of_the_findings(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").write_text("polcy: audit\n")

    done = toolpost("doctor", "--json")

    assert done.code == 1
    assert "did you mean 'policy'?" in checks(done)["configuration"]["detail"]
    assert checks(done)["python"]["state"] == "ok"


@pytest.mark.parametrize(
    ("data_dir", "said"),
    [("file", "is not a folder"), ("file/below", "cannot be created"), ("fresh/below", "created at")],
)
def test_the_data_folder_is_looked_at(toolpost: Run, home: Path, data_dir: str, said: str) -> None:
    (home / "file").write_text("")
    (home / "toolpost.yaml").write_text(f"data_dir: {data_dir}\n")

    done = toolpost("doctor", "--json")

    assert said in checks(done)["data folder"]["detail"]
    assert done.code == (0 if said == "created at" else 1)


def test_open_doors_and_a_newer_database_are_found(toolpost: Run, home: Path) -> None:
    toolpost("tools", "call", "local.wipe", "--args", '{"name": "disk"}')
    folder = home / ".toolpost"
    folder.chmod(0o755)
    (folder / "key").chmod(0o644)
    database = sqlite3.connect(folder / "toolpost.db")
    database.execute("PRAGMA user_version = 999")
    database.close()

    done = toolpost("doctor", "--json")

    found = checks(done)
    assert done.code == 1
    assert (found["data folder"]["state"], found["key file"]["state"]) == ("note", "broken")
    assert "newer than this toolpost knows" in found["database"]["detail"]


def test_something_that_is_no_database_is_found(toolpost: Run, home: Path) -> None:
    (home / ".toolpost").mkdir()
    (home / ".toolpost" / "toolpost.db").write_text("not a database, but long enough to be looked at as one")

    assert checks(toolpost("doctor", "--json"))["database"]["state"] == "broken"


def test_a_configuration_that_holds_is_reported_as_it_was_read(toolpost: Run, home: Path) -> None:
    done = toolpost("config", "check", "--connect", "--json")

    assert done.code == 0
    assert (done.json["status"], done.json["path"]) == ("ok", str(home / "toolpost.yaml"))
    assert done.json["allowed_paths"] == [str(home / "data")]
    [local] = done.json["sources"]
    assert local == {"name": "local", "transport": "python", "ok": True, "tools": 8, "error": None, "state": "up"}
    assert "The configuration is valid." in toolpost("config", "check", "--connect").err


def test_a_configuration_with_a_broken_source_does_not_hold(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").write_text(BROKEN_SOURCE)

    done = toolpost("config", "check", "--connect", "--json")
    told = toolpost("config", "check", "--connect")

    assert (done.code, done.json["status"]) == (1, "failed")
    assert [(source["name"], source["ok"]) for source in done.json["sources"]] == [("local", True), ("odd", False)]
    assert done.json["disabled"] == ["idle"]
    assert told.code == 1
    assert "failed: " in told.out
    assert "disabled" in told.out


def test_no_configuration_at_all_holds(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").unlink()

    done = toolpost("config", "check", "--connect", "--json")

    assert (done.code, done.json["path"], done.json["policy"]) == (0, None, "standard")


@pytest.mark.parametrize(("value", "state"), [(None, "broken"), ("AAAA", "broken"), (f"{'A' * 43}=", "ok")])
def test_a_key_in_another_place_than_the_folder_is_looked_at(
    toolpost: Run, home: Path, monkeypatch: pytest.MonkeyPatch, value: str | None, state: str
) -> None:
    (home / ".toolpost").mkdir(mode=0o700)
    (home / "toolpost.yaml").write_text("accounts: {key: env:TP_KEY}\n")
    monkeypatch.delenv("TP_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("TP_KEY", value)

    found = checks(toolpost("doctor", "--json"))["key"]

    assert found["state"] == state
    assert "TP_KEY" in found["detail"]
