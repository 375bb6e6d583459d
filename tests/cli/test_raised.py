"""An exception in a tool's own code, as its author meets it on the command line."""

from pathlib import Path

from tests.cli.conftest import CONFIG
from tests.cli.program import Run

RAISING = '''
import json

from toolpost import tool


@tool(side_effects="pure")
def boom() -> int:
    """Raise in the tool itself."""
    return {}["x"]


@tool(side_effects="pure")
def parse(text: str) -> dict:
    """Raise in a library."""
    return json.loads(text)
'''


def test_the_command_line_names_the_line_and_shows_the_traceback_on_request(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").write_text(CONFIG)
    (home / "tools.py").write_text(RAISING)

    called = toolpost("tools", "call", "local.boom")
    parsed = toolpost("tools", "call", "local.parse", "text={", "--json")
    run_id = parsed.json["run_id"]

    assert "failed: KeyError: 'x'\n  at tools.py:10, in boom\n" in called.err
    assert "--verbose` shows the traceback" in called.err
    assert "Traceback" not in called.err
    assert "  at tools.py:16, in parse" in parsed.err  # and not a line of the library
    assert "Traceback" not in toolpost("runs", "show", run_id).out
    assert "json.loads(text)" in toolpost("runs", "show", run_id, "--verbose").out
    shown = toolpost("runs", "show", run_id, "--verbose", "--json").json
    assert "json.loads(text)" in shown["log"][-1]["traceback"]
