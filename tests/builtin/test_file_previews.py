"""What file tools destroy is shown before it happens, and only what was shown happens."""

from pathlib import Path
from typing import Any

import pytest

from tests.patient_settings import PatientSettings
from toolpost import Completed, Failed, Paused, Settings, Toolbox, ToolContext, tool
from toolpost.sources import CallPreview


def box(folder: Path, policy: Any = "standard", **more: Any) -> Toolbox:
    facts = {"data_dir": None, "policy": policy, "tools": {"allowedPaths": [str(folder)]}, **more}
    return Toolbox(settings=PatientSettings.model_validate(facts), builtins=["file_tools"])


def preview_of(outcome: object) -> str:
    assert isinstance(outcome, Paused), outcome
    return str(outcome.question.payload["preview"])


async def test_a_new_file_is_written_without_a_question_and_an_old_one_with_a_diff(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "a.txt")
    async with box(tmp_path) as opened:
        created = await opened.call("write_file", {"path": path, "content": "one\ntwo\nthree\n"})
        same = await opened.call("write_file", {"path": path, "content": "one\ntwo\nthree\n"})
        asked = await opened.call("write_file", {"path": path, "content": "one\n2\nthree\n"})
        before = Path(path).read_text()
        assert isinstance(asked, Paused)
        done = await opened.approve(asked.pending_id, by="local:ann")

    assert isinstance(created, Completed)
    assert isinstance(same, Completed)
    assert preview_of(asked).splitlines() == [
        f"--- {path} (now)",
        f"+++ {path} (new)",
        *("@@ -1,3 +1,3 @@", " one", "-two", "+2", " three"),
    ]
    assert f"it overwrites '{path}' (14 bytes)" in asked.question.prompt
    assert before == "one\ntwo\nthree\n"
    assert isinstance(done, Completed)
    assert Path(path).read_text() == "one\n2\nthree\n"


async def test_deleting_and_moving_say_what_is_lost(tmp_path: Path) -> None:
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt"):
        (tmp_path / name).write_text("x" * 7)
    here = f"{tmp_path}/"
    async with box(tmp_path) as opened:
        file = await opened.call("delete_file", {"path": here + "a.txt"})
        folder = await opened.call("delete_file", {"path": here + "sub", "recursive": True})
        nothing = await opened.call("delete_file", {"path": here + "nothing"})
        over = await opened.call("move_file", {"from": here + "a.txt", "to": here + "b.txt", "overwrite": True})
        aside = await opened.call("move_file", {"from": here + "a.txt", "to": here + "new/e.txt"})

    assert preview_of(file) == f"Deletes the file '{here}a.txt' (7 bytes)"
    assert preview_of(folder).splitlines() == [
        f"Deletes the folder '{here}sub' with 3 entries:",
        *("  c.txt", "  deep", "  deep/d.txt"),
    ]
    assert isinstance(nothing, Completed)
    assert preview_of(over).splitlines()[-1] == f"Overwrites the file '{here}b.txt' (7 bytes)"
    assert preview_of(aside).splitlines() == [f"Moves the file '{here}a.txt' (7 bytes)", f"to '{here}new/e.txt'"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write_file", {"path": "a.txt", "content": "new"}),
        ("delete_file", {"path": "a.txt"}),
        ("move_file", {"from": "b.txt", "to": "a.txt", "overwrite": True}),
    ],
)
async def test_a_yes_is_for_the_file_that_was_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, arguments: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("a.txt", "b.txt"):
        Path(file).write_text(f"{file}\n")
    async with box(tmp_path) as opened:
        asked = await opened.call(name, arguments)
        assert isinstance(asked, Paused)
        Path("a.txt").write_text("a person's work of the last hour\n")
        again = await opened.approve(asked.pending_id, by="local:ann")
        kept = Path("a.txt").read_text()
        assert isinstance(again, Paused)
        done = await opened.approve(again.pending_id, by="local:ann")

    assert again.question.prompt.startswith("What it would change has changed since it was approved.")
    assert preview_of(again) != preview_of(asked)
    assert kept == "a person's work of the last hour\n"
    assert isinstance(done, Completed)


async def test_what_cannot_be_done_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    async with box(tmp_path) as opened:
        outcomes = [
            await opened.call("write_file", {"path": "/etc/passwd", "content": "x"}),
            await opened.call("write_file", {"path": str(tmp_path / "sub"), "content": "x"}),
            await opened.call("delete_file", {"path": str(tmp_path / "sub")}),
            await opened.call("move_file", {"from": str(tmp_path / "absent"), "to": str(tmp_path / "b")}),
        ]

    codes = [outcome.error.error_code for outcome in outcomes if isinstance(outcome, Failed)]
    assert codes == ["path_refused", "is_a_folder", "is_a_folder", "file_not_found"]


@pytest.mark.parametrize(
    ("policy", "new", "old"),
    [
        ("exploratory", "completed", "completed"),
        ("audit", "paused", "paused"),
        ([{"tools": ["write_file"], "action": "allow"}], "completed", "completed"),
        ([{"destructive": True, "action": "deny"}], "completed", "failed"),
        ([{"destructive": False, "action": "ask"}], "paused", "paused"),
    ],
)
async def test_policies_and_rules_judge_the_call_and_not_the_tool(
    tmp_path: Path, policy: Any, new: str, old: str
) -> None:
    (tmp_path / "old").write_text("x")
    async with box(tmp_path, policy) as opened:
        outcomes = [
            await opened.call("write_file", {"path": str(tmp_path / name), "content": "y"}) for name in ("new", "old")
        ]

    assert [outcome.status for outcome in outcomes] == [new, old]


async def test_an_edit_is_not_asked_about(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    async with box(tmp_path) as opened:
        edited = await opened.call("edit_file", {"path": str(tmp_path / "a"), "old_string": "x", "new_string": "y"})

    assert isinstance(edited, Completed)


async def test_a_long_preview_is_cut_and_holds_no_known_secret(tmp_path: Path) -> None:
    file = tmp_path / "toolpost.yaml"
    source = {"name": "x", "transport": "http", "connection": "http://127.0.0.1:1/", "enabled": False}
    secret = "sk-very-secret-token-1234"
    source |= {"auth_type": "bearer", "auth_config": {"token": secret}}
    (tmp_path / "a").write_text(f"key: {secret}\n" + "".join(f"line {n}\n" for n in range(1500)))
    (tmp_path / "b").write_bytes(b"\0binary")
    async with box(tmp_path, sources=[source]) as opened:
        text = await opened.call("write_file", {"path": str(tmp_path / "a"), "content": "x\n"})
        binary = await opened.call("write_file", {"path": str(tmp_path / "b"), "content": "x\n"})

    assert secret not in preview_of(text)
    assert "[redacted]" in preview_of(text)
    assert 7000 < len(preview_of(text)) < 8100
    assert preview_of(text).endswith("…")
    assert "7 bytes are replaced by 2 bytes" in preview_of(binary)
    assert not file.exists()


async def test_a_preview_without_a_state_is_approved_once() -> None:
    async def look(params: dict[str, Any], ctx: ToolContext) -> CallPreview:
        return CallPreview(text="all of it")

    @tool(side_effects="write", destructive=True, preview=look)
    async def wipe() -> str:
        return "wiped"

    async with Toolbox(tools=[wipe], settings=Settings(data_dir=None)) as opened:
        asked = await opened.call("wipe")
        assert isinstance(asked, Paused)
        done = await opened.approve(asked.pending_id, by="local:ann")

    assert preview_of(asked) == "all of it"
    assert isinstance(done, Completed)


async def test_a_tool_of_ones_own_says_what_a_call_would_do() -> None:
    stock = {"tea": 3, "rum": 0}

    async def look(params: dict[str, Any], ctx: ToolContext) -> CallPreview:
        left = stock[params["name"]]
        return CallPreview(left > 0, f"{left} are left", f"{left} of {params['name']} are thrown away", str(left))

    @tool(side_effects="write", destructive=True, preview=look)
    async def throw_away(name: str, ctx: ToolContext) -> str:
        """Throw all of something away."""
        assert ctx.preview is not None
        return f"{ctx.preview.state} gone, {stock.pop(name)} really"

    async with Toolbox(tools=[throw_away], settings=Settings(data_dir=None)) as opened:
        none_left = await opened.call("throw_away", {"name": "rum"})
        asked = await opened.call("throw_away", {"name": "tea"})
        assert isinstance(asked, Paused)
        done = await opened.approve(asked.pending_id, by="local:ann")

    assert isinstance(none_left, Completed)
    assert asked.question.prompt == "Allow throw_away? Approval is required: 3 are left."
    assert preview_of(asked) == "3 of tea are thrown away"
    assert isinstance(done, Completed)
    assert done.content == "3 gone, 3 really"
