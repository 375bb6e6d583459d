"""Files for calls, and what calls made as files."""

from pathlib import Path

import pytest

from tests.cli.program import Run

PICTURE = b"\x89PNG\r\n\x00\xff"


@pytest.fixture
def picture(home: Path) -> Path:
    with (home / "tools.py").open("a") as tools:
        tools.write(
            "\n\n@tool(side_effects='pure')\ndef send(body: dict[str, object]) -> dict[str, object]:\n    return body\n"
        )
    (home / "a.png").write_bytes(PICTURE)
    return home / "a.png"


def test_a_local_file_goes_to_a_tool_as_an_artifact_and_comes_back_as_a_file(
    toolpost: Run, home: Path, picture: Path
) -> None:
    sent = toolpost(
        "tools", "call", "local.send", "--args", '{"body": {"n": 1}}', "--file", f"body.it={picture}", "--json"
    )
    artifact = sent.json["content"]["it"]
    saved = toolpost("artifacts", "save", artifact["artifact_id"], "b.png")

    assert (sent.json["content"]["n"], artifact["filename"]) == (1, "a.png")
    assert (saved.code, saved.out, "image/png, 8 bytes" in saved.err) == (0, "", True)
    assert (home / "b.png").read_bytes() == PICTURE


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--file", "body"], "write ARGUMENT=PATH"),
        (["--file", "body.=a.png"], "write ARGUMENT=PATH"),
        (["--file", "body=none.png"], "none.png: No such file"),
        (["--file", "body.it=a.png", "--args", '{"body": 1}'], "'body' is not an object in --args"),
        (["--file", "body=a.png", "--args", "[]"], "the arguments must be an object"),
        (["--file", "body=a.png", "--idempotency-key", "k"], "would differ from the first"),
    ],
)
@pytest.mark.usefixtures("picture")
def test_a_file_that_cannot_be_given_is_a_wrong_command_line(toolpost: Run, options: list[str], told: str) -> None:
    done = toolpost("tools", "call", "local.send", *options)

    assert (done.code, done.out, told in " ".join(done.err.split())) == (2, "", True), done.err


def test_artifacts_are_listed(toolpost: Run) -> None:
    called = toolpost("tools", "call", "local.large", "--json").json

    [listed] = toolpost("artifacts", "list", "--run", called["run_id"], "--json").json

    assert ([listed["id"]], listed["tool_name"]) == (called["artifacts"], "local.large")
    assert listed["id"] in toolpost("artifacts", "list").out
    assert toolpost("artifacts", "list", "--user", "evil:mallory", "--json").json == []


@pytest.mark.programs
def test_an_artifact_is_saved_once_to_a_file_or_given_to_a_pipe(child: Run, home: Path) -> None:
    made = child("tools", "call", "local.large", "--json").json["artifacts"][0]
    piped = child("artifacts", "save", made, "-")
    (home / "there.txt").write_text("mine")
    refused = child("artifacts", "save", made, "there.txt")
    told = child("artifacts", "save", made, "new.txt", "--json")

    assert (piped.code, piped.out) == (0, "x" * 100_000)
    assert (refused.code, (home / "there.txt").read_text()) == (1, "mine")
    assert "the file 'there.txt' already exists" in refused.err
    assert (told.json["file"], told.json["artifact"]["size"]) == ("new.txt", 100_000)


def test_an_artifact_of_another_tenant_is_not_found(toolpost: Run, home: Path) -> None:
    made = toolpost("tools", "call", "local.large", "--json").json["artifacts"][0]
    done = toolpost("artifacts", "save", made, "it.txt", "--user", "acme:bob")

    assert (done.code, (home / "it.txt").exists()) == (1, False)
    assert f"Artifact '{made}' not found for acme:bob" in done.err
    assert toolpost("artifacts", "save", made, "no/it.txt").code == 1
