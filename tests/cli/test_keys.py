"""The key of the data folder, from the command line."""

from pathlib import Path

from tests.cli.program import Run


def test_what_was_sealed_before_the_key_was_rotated_opens_afterwards(toolpost: Run, home: Path) -> None:
    waiting = toolpost("tools", "call", "local.wipe", "name=disk", "--json")
    key = home / ".toolpost" / "key"
    before = key.read_bytes()

    rotated = toolpost("keys", "rotate", "--retire", "--json")
    shown = toolpost("pending", "show", waiting.json["pending"]["id"], "--json")
    done = toolpost("pending", "approve", waiting.json["pending"]["id"], "--json")

    assert (rotated.code, rotated.json["status"], rotated.json["retired"]) == (0, "ok", True)
    assert rotated.json["sealed"]["pending"] > 0
    assert before not in key.read_bytes()
    assert shown.json["arguments"] == {"name": "disk"}
    assert done.json["status"] == "completed"


def test_older_keys_are_kept_unless_they_are_retired(toolpost: Run) -> None:
    toolpost("tools", "call", "local.wipe", "name=disk", "--json")

    rotated = toolpost("keys", "rotate")

    assert rotated.code == 0
    assert "The older ones are kept, and open what they sealed." in rotated.err
