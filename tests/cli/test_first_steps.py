"""What a newcomer types first: help, versions, a look around; none of it surprises or leaves a trace."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import Run, child_environment, command
from toolpost import __version__

GROUPS = [[], ["tools"], ["pending"], ["accounts"], ["runs"], ["artifacts"], ["config"]]
STARTED = "from pathlib import Path\nPath(__file__).with_name('started').touch()\n"


def names_below(help_text: str) -> list[str]:
    return re.findall(r"^  (\w+) ", help_text.partition("Commands:\n")[2].partition("\n\n")[0], re.MULTILINE)


@pytest.mark.parametrize("group", GROUPS, ids=lambda words: " ".join(words) or "toolpost")
def test_help_is_whole_and_in_plain_words(toolpost: Run, group: list[str]) -> None:
    listed = toolpost(*group, "-h")
    pages = [listed, *(toolpost(*group, name, "-h") for name in names_below(listed.out))]

    shown = "".join(page.out for page in pages)
    assert {page.code for page in pages} == {0}
    assert len(pages) > 1
    assert "..." not in listed.out.replace("COMMAND [ARGS]...", "")
    assert re.findall(r"\{[A-Z]|\[\[|<(?:str|int|path|list)", shown) == []


def test_help_can_be_asked_for_in_three_ways(toolpost: Run) -> None:
    asked = [toolpost("tools", "call", option).out for option in ("-h", "--help")]

    assert [*asked, toolpost("help", "tools", "call").out] == [asked[0]] * 3
    assert toolpost("help").out == toolpost("--help").out
    assert (toolpost("-V").code, toolpost("-V").out) == (0, f"toolpost {__version__}\n")
    assert "130 interrupted" in toolpost("-h").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runs", "list", "--limit", "0"], "must be greater than or equal to 1"),
        (["tools", "list", "--category", "furniture"], ": 'furniture' is not one of"),
        (["tools", "list", "--user", ""], "'' is not a principal; write TENANT:USER"),
        (["tools", "list", "--user", "a:b:c"], "'a:b:c' has more than one colon; write TENANT:USER"),
    ],
)
def test_a_wrong_value_is_reported_in_plain_words(toolpost: Run, words: list[str], said: str) -> None:
    done = toolpost(*words)

    assert done.code == 2
    assert said in done.err
    assert "Value error" not in done.err
    assert "Input should" not in done.err


@pytest.mark.parametrize(
    "words",
    [["tools", "list"], ["tools", "show", "nope"], ["doctor"], ["events"], ["runs", "list"], ["pending", "list"]],
)
def test_looking_around_in_a_folder_leaves_nothing_in_it(
    toolpost: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    toolpost(*words)

    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    "words", [["tools", "list"], ["tools", "list", "--source", "local"], ["tools", "show", "local.add"], ["doctor"]]
)
def test_looking_at_the_tools_of_others_makes_no_data_folder(toolpost: Run, home: Path, words: list[str]) -> None:
    before = sorted(home.iterdir())

    done = toolpost(*words)

    assert (done.code, sorted(home.iterdir())) == (0, before)


def test_the_check_of_a_configuration_starts_nothing_unless_it_is_asked_to(toolpost: Run, home: Path) -> None:
    (home / "tools.py").write_text(STARTED + (home / "tools.py").read_text())

    quiet = toolpost("config", "check", "--json")
    before = (home / "started").exists()
    connected = toolpost("config", "check", "--connect", "--json")

    assert (quiet.code, quiet.json["sources"][0]["ok"], before) == (0, None, False)
    assert (connected.code, connected.json["sources"][0]["ok"], (home / "started").exists()) == (0, True, True)
    assert "not started; use --connect" in toolpost("config", "check").out


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{name: a, transport: mcp, connection: no-such-program --all}", "no-such-program is not on the PATH"),
        ("{name: a, transport: python, connection: ./gone.py}", "gone.py does not exist"),
    ],
)
def test_the_check_reports_what_cannot_start_without_trying(toolpost: Run, home: Path, written: str, said: str) -> None:
    (home / "toolpost.yaml").write_text(f"sources: [{written}]\n")

    done = toolpost("config", "check", "--json")

    assert (done.code, done.json["sources"][0]["ok"]) == (1, False)
    assert said in done.json["sources"][0]["error"]


def test_connect_writes_nothing_that_is_known_not_to_start(toolpost: Run, home: Path) -> None:
    before = (home / "toolpost.yaml").read_text()

    refused = toolpost("tools", "connect", "no-such-program --all", "--yes", "--json")
    kept = (home / "toolpost.yaml").read_text()
    forced = toolpost("tools", "connect", "no-such-program --all", "--yes", "--force")

    assert (refused.code, refused.json["error"]["error_code"]) == (1, "cannot_start")
    assert "With --force, it is written nevertheless." in refused.json["error"]["message"]
    assert kept == before
    assert forced.code == 1
    assert "no-such-program --all" in (home / "toolpost.yaml").read_text()
    assert "`toolpost tools disconnect no-such-program` removes it." in forced.err


def test_the_presets_are_listed(toolpost: Run) -> None:
    listed = {preset["name"]: preset for preset in toolpost("tools", "presets", "--json").json}

    assert listed["time"]["package"] == "mcp-server-time"
    assert "filesystem" in toolpost("tools", "presets").out


@pytest.mark.programs
def test_a_reader_that_has_seen_enough_is_no_error(toolpost: Run, home: Path) -> None:
    for _ in range(3):
        toolpost("tools", "call", "local.add", "--args", '{"a": 1, "b": 2}')

    piped = " ".join(command("events", "--json"))
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {piped} | head -1; echo ${{PIPESTATUS[0]}}"],
        cwd=home,
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""
