"""The program on a disk that is full: every command says so, once, where it is expected."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.program import Run

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(not Path("/bin/mount").exists(), reason="NOT TESTED on a full disk: there is no mount here"),
]


@pytest.fixture
def full(toolpost: Run, home: Path, small_disk: Path) -> Run:
    """The program with a data folder on a disk that has filled up since the first call."""
    with (home / "toolpost.yaml").open("a") as config:
        config.write(f"data_dir: {small_disk / 'data'}\n")
    assert toolpost("tools", "call", "local.noisy").code == 0
    fill(small_disk)
    return toolpost


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(os.urandom(4096))


def test_json_is_one_document_even_if_the_events_are_not_written(full: Run) -> None:
    # A built-in tool: the event of a source that connects may fail before the call, and then nothing is called.
    done = full("tools", "call", "base64_encode", "text=hello", "--json")

    assert (done.code, done.json["status"]) == (1, "completed")
    assert "events were not written" in done.err


def test_doctor_finds_what_is_wrong(full: Run) -> None:
    done = full("doctor", "--json")

    [space] = [check for check in done.json["checks"] if check["name"] == "free space"]
    assert (done.code, done.json["status"], space["state"]) == (1, "failed", "broken")
    assert "the disk is full; free some space" in space["detail"]


def test_an_artifact_that_has_no_room_leaves_no_part_of_a_file(toolpost: Run, small_disk: Path) -> None:
    [kept] = toolpost("tools", "call", "local.large", "--json").json["artifacts"]
    fill(small_disk)

    done = toolpost("artifacts", "save", kept, str(small_disk / "saved"))

    assert (done.code, "No space left on device; free some space, or name another file" in done.err) == (1, True)
    assert [file.name for file in small_disk.iterdir()] == ["filler"]


def test_a_workflow_whose_file_is_missing_is_reported_before_the_disk(full: Run) -> None:
    done = full("workflow", "run", "nofile.yaml")

    assert (done.code, done.err.splitlines()[0]) == (1, "failed: nofile.yaml: No such file or directory")
