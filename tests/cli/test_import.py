"""`toolpost import`: other programs' servers, shown and written; nothing of theirs is started."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.program import Run
from tests.cli.terminal import at_a_terminal

SECRET = "zzz-secret"


@pytest.fixture
def mcp_json(home: Path) -> Path:
    """A file with a server that would leave a trace if it were started."""
    trace = [sys.executable, "-c", f"open({str(home / 'started')!r}, 'w')"]
    return _write(
        home / ".mcp.json",
        {
            "trace": {"command": trace[0], "args": trace[1:], "env": {"GITHUB_TOKEN": SECRET, "LOG": "debug"}},
            "far": {
                "type": "http",
                "url": "https://far.example/mcp",
                "headers": {"Authorization": f"Bearer {SECRET}-too"},
            },
            "local": {"command": "run"},
            "my docs": {"command": "run", "disabled": True, "envFile": ".env"},
        },
    )


def _write(path: Path, servers: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def _sources(home: Path) -> dict[str, dict]:
    return {source["name"]: source for source in yaml.safe_load((home / "toolpost.yaml").read_text())["sources"]}


def test_servers_are_shown_with_their_exact_commands_and_written(toolpost: Run, home: Path, mcp_json: Path) -> None:
    done = toolpost("import", ".mcp.json", "--yes")

    assert done.code == 0
    assert f"{sys.executable} -c" in done.out
    assert "https://far.example/mcp" in done.out
    assert "GITHUB_TOKEN, LOG" in done.out
    assert list(_sources(home)) == ["local", "trace", "far", "my-docs"]
    assert _sources(home)["trace"]["env"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "LOG": "debug"}
    assert _sources(home)["far"]["headers"] == {"Authorization": "Bearer ${FAR_AUTHORIZATION}"}
    assert _sources(home)["my-docs"]["enabled"] is False
    assert not (home / "started").exists()


def test_a_package_without_a_version_is_reported(toolpost: Run, home: Path) -> None:
    _write(home / ".mcp.json", {"loose": {"command": "npx", "args": ["-y", "@acme/notes"]}})

    done = toolpost("import", ".mcp.json", "--dry-run")

    assert "@acme/notes has no version, so every start runs the newest one" in done.err


def test_changed_and_skipped_parts_are_reported(toolpost: Run, mcp_json: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    done = toolpost("import", ".mcp.json", "--yes")

    assert "local: skipped, because toolpost.yaml already has a source of that name" in done.err
    assert "my docs: renamed to my-docs" in done.err
    assert "envFile" not in done.err
    assert "3 sources written to toolpost.yaml; nothing was started." in done.err
    assert "Set GITHUB_TOKEN: env GITHUB_TOKEN of 'trace'." in done.err
    assert "Set FAR_AUTHORIZATION: header Authorization of 'far'." in done.err
    assert "Until then, commands skip " in done.err
    assert SECRET not in done.out + done.err


def test_programs_get_one_document(toolpost: Run, home: Path, mcp_json: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", SECRET)
    done = toolpost("import", ".mcp.json", "--yes", "--json")

    document = done.json
    assert (done.code, document["status"], document["written"], document["skipped"]) == (0, "ok", True, ["local"])
    assert [source["name"] for source in document["sources"]] == ["trace", "far", "my-docs"]
    assert document["sources"][0]["env"] == ["GITHUB_TOKEN", "LOG"]
    assert {(variable["name"], variable["set"]) for variable in document["variables"]} == {
        ("GITHUB_TOKEN", True),
        ("FAR_AUTHORIZATION", False),
    }
    assert SECRET not in done.out


def test_a_dry_run_writes_nothing_and_asks_no_one(toolpost: Run, home: Path, mcp_json: Path) -> None:
    before = (home / "toolpost.yaml").read_text()
    done = toolpost("import", ".mcp.json", "--dry-run")

    assert done.code == 0
    assert yaml.safe_load(done.out[done.out.index("sources:") :])["sources"][1]["name"] == "far"
    assert (home / "toolpost.yaml").read_text() == before
    assert toolpost("import", ".mcp.json", "--dry-run", "--json").json["written"] is False


def test_without_a_terminal_and_without_a_yes_nothing_is_written(toolpost: Run, home: Path, mcp_json: Path) -> None:
    before = (home / "toolpost.yaml").read_text()
    done = toolpost("import", ".mcp.json")

    assert done.code == 1
    assert "add --yes" in done.err
    assert (home / "toolpost.yaml").read_text() == before


def test_what_is_there_already_is_nothing_to_add(toolpost: Run, home: Path) -> None:
    _write(home / ".mcp.json", {"local": {"command": "run"}})
    before = (home / "toolpost.yaml").read_text()

    done = toolpost("import", ".mcp.json")

    assert done.code == 0
    assert ".mcp.json contains no new sources for toolpost.yaml." in done.err
    assert (home / "toolpost.yaml").read_text() == before


def test_a_file_of_which_nothing_can_be_used_is_a_failure(toolpost: Run, home: Path) -> None:
    _write(home / ".mcp.json", {"odd": {"type": "ws", "url": "wss://a.example"}})

    done = toolpost("import", ".mcp.json")

    assert done.code == 1
    assert "odd: skipped, because its transport 'ws' is not supported" in done.err


def test_a_file_of_another_folder_brings_that_folder_along(toolpost: Run, home: Path) -> None:
    _write(home / "below" / ".vscode" / "mcp.json", {"here": {"command": "./run"}})
    _write(home.parent / "beside" / ".mcp.json", {"there": {"command": "./run"}})

    toolpost("import", "below/.vscode/mcp.json", "--yes")
    toolpost("import", "../beside/.mcp.json", "--yes")

    assert _sources(home)["here"]["cwd"] == "below"
    assert _sources(home)["there"]["cwd"] == str(home.parent / "beside")


def test_the_file_is_made_if_it_is_not_there(toolpost: Run, home: Path, mcp_json: Path) -> None:
    done = toolpost("import", ".mcp.json", "--yes", "--config", "other.yaml")

    assert done.code == 0
    assert [source["name"] for source in yaml.safe_load((home / "other.yaml").read_text())["sources"]] == [
        "trace",
        "far",
        "local",
        "my-docs",
    ]


def test_without_a_file_those_that_can_be_found_are_listed(
    toolpost: Run, home: Path, mcp_json: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home / "person"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    cursor = _write(home / "person" / ".cursor" / "mcp.json", {"one": {"command": "run"}})
    settings = home / "person" / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text("{}")
    (home / ".vscode").mkdir()
    (home / ".vscode" / "mcp.json").write_text("{")

    done = toolpost("import")
    listed = {item["file"]: item for item in toolpost("import", "--json").json}

    assert done.code == 0
    assert "trace, far, local, my-docs" in done.out
    assert "`toolpost import FILE` imports the servers of one." in done.err
    assert set(listed) == {str(mcp_json), str(home / ".vscode" / "mcp.json"), str(cursor)}
    assert listed[str(cursor)]["servers"] == ["one"]
    assert "line 1, column 2" in listed[str(home / ".vscode" / "mcp.json")]["error"]


def test_when_nothing_is_found_that_is_said(toolpost: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)

    assert toolpost("import", "--json").json == []
    assert "No file with MCP servers" in toolpost("import").err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{\n  "mcpServers": {\n', "broken.json, line 3, column 1: this is not JSON"),
        ("{}", "contains no MCP servers"),
        (None, "broken.json does not exist"),
    ],
)
def test_a_broken_file_is_reported(toolpost: Run, home: Path, text: str | None, told: str) -> None:
    if text is not None:
        (home / "broken.json").write_text(text)

    done = toolpost("import", "broken.json", "--json")

    assert (done.code, done.json["status"]) == (1, "failed")
    assert told in done.json["error"]["message"]


@pytest.fixture
def small_json(home: Path) -> None:
    """A file with a server that answers, and one that does not."""
    small = {"command": sys.executable, "args": [str(Path(__file__).with_name("small_server.py"))]}
    _write(home / ".mcp.json", {"small": small})
    _write(home / "broken.json", {"broken": {"command": sys.executable, "args": ["-c", "pass"]}})


@pytest.mark.programs
@pytest.mark.usefixtures("small_json")
def test_trust_takes_the_servers_word_and_pins_their_tools(toolpost: Run, home: Path) -> None:
    done = toolpost("import", ".mcp.json", "--yes", "--trust", "--json")
    broken = toolpost("import", "broken.json", "--yes", "--trust", "--json")

    assert (done.code, done.json["trusted"], _sources(home)["small"]["trust"]) == (0, ["small"], True)
    assert "small.greet: reads only" in done.err
    assert set(json.loads((home / "toolpost.lock").read_text())["sources"]) == {"small"}
    assert toolpost("tools", "call", "small.greet", "--args", '{"name": "Ann"}').code == 0
    assert (broken.code, broken.json["status"], broken.json["trusted"]) == (1, "failed", [])
    assert "trust" not in _sources(home)["broken"]


def test_trust_waits_for_the_variables_that_a_server_needs(toolpost: Run, home: Path, mcp_json: Path) -> None:
    done = toolpost("import", ".mcp.json", "--yes", "--trust")
    assert done.code == 1
    assert "None of them is trusted, because GITHUB_TOKEN, FAR_AUTHORIZATION are not set" in done.err
    assert not (home / "started").exists()


@pytest.mark.programs
@pytest.mark.usefixtures("small_json")
@pytest.mark.parametrize(("sees", "trusts"), [(b"y\n", b"y\n"), (b"y\n", b"n\n"), (b"n\n", None)])
def test_a_person_may_look_at_the_claims_and_decide(home: Path, sees: bytes, trusts: bytes | None) -> None:
    answers = {"to toolpost.yaml? [y/N]": b"y\n", "to see their tool annotations?": sees}
    done = at_a_terminal(home, answers | ({"Trust small?": trusts} if trusts else {}), "import", ".mcp.json")
    assert done.code == 0
    assert ("reads only" in done.out) is (trusts is not None)
    assert _sources(home)["small"].get("trust", False) is (trusts == b"y\n")
