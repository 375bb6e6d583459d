"""What goes wrong before a call can begin is told in words or as JSON, never as a traceback."""

import os
import shlex
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import Run, child_environment, command
from toolpost.cli.commands import CommonOptions
from toolpost.cli.runner import run_command
from toolpost.contracts.errors import ToolError

ADD = ("tools", "call", "local.add", "--args", '{"a": 2, "b": 3}')


@pytest.mark.programs
def test_a_wrong_key_in_the_configuration_names_the_right_one(toolpost: Run, child: Run, home: Path) -> None:
    (home / "toolpost.yaml").write_text("polcy: audit\n")

    done = toolpost("tools", "list", "--json")
    told = child("tools", "list")

    message = "unknown key 'polcy' in toolpost.yaml; did you mean 'policy'?"
    assert (done.code, done.json["status"], done.json["error"]["message"]) == (1, "failed", message)
    assert (told.code, told.out) == (1, "")
    assert message in told.err
    assert "Traceback" not in told.err


def test_a_configuration_elsewhere_is_read_and_its_paths_are_its_own(toolpost: Run, home: Path) -> None:
    other = home / "other"
    other.mkdir()
    (other / "mine.yaml").write_text("sources: [{name: mine, transport: python, connection: ../tools.py}]\n")

    done = toolpost("tools", "call", "mine.add", "--args", '{"a": 2, "b": 3}', "--config", "other/mine.yaml", "--json")

    assert done.json["content"] == 5
    assert (other / ".toolpost").is_dir()
    assert not (home / ".toolpost").exists()


@pytest.mark.parametrize("verb", [("tools", "list"), ("pending", "list"), ("runs", "list"), ("events",), ADD])
def test_a_data_folder_that_cannot_be_written_is_reported(toolpost: Run, home: Path, verb: tuple[str, ...]) -> None:
    (home / "file").write_text("")
    (home / "toolpost.yaml").write_text("data_dir: file/below\n")

    done = toolpost(*verb, "--json")

    assert (done.code, done.json["error"]["error_code"]) == (1, "store_unavailable")
    assert str(home / "file") in done.json["error"]["message"]
    assert "toolpost doctor" in toolpost(*verb).err


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_read_only_data_folder_is_reported(toolpost: Run, home: Path) -> None:
    (home / ".toolpost").mkdir(mode=0o500)

    done = toolpost(*ADD, "--json")

    assert (done.code, done.json["error"]["error_code"]) == (1, "store_unavailable")
    assert toolpost("doctor").code == 1


def test_a_database_of_a_newer_version_is_left_alone(toolpost: Run, home: Path) -> None:
    assert toolpost(*ADD).code == 0
    database = sqlite3.connect(home / ".toolpost" / "toolpost.db")
    database.execute("PRAGMA user_version = 999")
    database.close()

    done = toolpost(*ADD, "--json")

    assert (done.code, done.json["error"]["error_code"]) == (1, "store_unavailable")
    assert "999" in done.json["error"]["message"]


def test_a_question_encrypted_with_another_key_is_not_run(toolpost: Run, home: Path) -> None:
    paused = toolpost("tools", "call", "local.wipe", "--args", '{"name": "disk"}', "--json").json
    key = home / ".toolpost" / "key"
    key.unlink()

    done = toolpost("pending", "approve", paused["pending"]["id"], "--json")

    assert (done.code, done.json["error"]["type"]) == (1, "StoreError")
    assert not (home / "wiped.txt").exists()


@pytest.mark.programs
@pytest.mark.parametrize("closed", [1, 2])
def test_a_closed_stream_is_no_trouble(home: Path, closed: int) -> None:
    line = shlex.join(command("tools", "call", "local.add", "--args", '{"a": 2, "b": 3}'))

    done = subprocess.run(
        ["sh", "-c", f"exec {line} {closed}>&-"],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


def test_a_secret_of_the_configuration_is_not_reported(
    toolpost: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cret-token-value")
    (home / "toolpost.yaml").write_text(
        "sources:\n- {name: local, transport: python, connection: ./tools.py, env: {T: '${MY_TOKEN}'}}\n"
        "tools: {timeout: '${MY_TOKEN}'}\n"
    )

    done = toolpost("config", "check", "--connect", "--json")

    assert done.code == 1
    assert "s3cret-token-value" not in done.out + done.err


def test_anything_unforeseen_is_a_failure_in_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unforeseen(_: object) -> int:
        raise LookupError("nobody thought of this")

    def leave() -> str:
        with pytest.raises(Exception) as leaving:  # noqa: PT011 - typer's own way to leave
            run_command(unforeseen, CommonOptions())
        assert getattr(leaving.value, "exit_code", None) == 1
        return capsys.readouterr().err

    assert leave().startswith("failed: LookupError: nobody thought of this\nSet TOOLPOST_TRACEBACK=1")
    monkeypatch.setenv("TOOLPOST_TRACEBACK", "1")
    assert "Traceback" in leave()


def test_a_reader_that_goes_away_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    async def reader_gone(_: object) -> int:
        raise BrokenPipeError

    with pytest.raises(Exception):  # noqa: B017, PT011 - typer's own way to leave
        run_command(reader_gone, CommonOptions(json=True))

    assert capsys.readouterr() == ("", "")


def test_an_error_of_the_toolbox_is_the_object_of_a_failed_call(capsys: pytest.CaptureFixture[str]) -> None:
    async def failing(_: object) -> int:
        raise ToolError("it did not work", tool_name="a.b", code="odd")

    with pytest.raises(Exception):  # noqa: B017, PT011 - typer's own way to leave
        run_command(failing, CommonOptions(json=True))

    out = capsys.readouterr().out
    assert '"status": "failed"' in out
    assert '"error_code": "odd"' in out


@pytest.mark.programs
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="NOT TESTED on a full disk: there is no /dev/full here")
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("verb", [("--version",), ("tools", "--help"), ("tools", "list", "--json"), ADD])
def test_an_answer_that_cannot_be_written_is_a_failure_that_says_why(
    home: Path, verb: tuple[str, ...], buffered: str
) -> None:
    with Path("/dev/full").open("w") as full:
        environment = child_environment(PYTHONUNBUFFERED=buffered)
        done = subprocess.run(
            command(*verb), cwd=home, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert done.returncode == 1
    assert done.stderr.count("the answer could not be written to stdout: No space left on device; free some space") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.programs
@pytest.mark.parametrize("verb", [("--version",), ("--help",), ("tools", "list")])
def test_nothing_is_said_when_the_reader_of_the_answer_has_gone(home: Path, verb: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = subprocess.run(
            command(*verb),
            cwd=home,
            env=child_environment(),
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert "Traceback" not in done.stderr
    assert "could not be written" not in done.stderr
