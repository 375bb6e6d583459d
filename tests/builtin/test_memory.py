"""Long-term memory: Markdown files with summaries, safe from each other's writers and from outside."""

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.builtin.caller import Caller
from toolpost.builtin.memory import memory_tools, resolve_memory_path
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolPermissionError

WRITER = Path(__file__).with_name("memory_writer.py")
USER = "# Ann\n\n> Summary: Who Ann is\n\n- City: Bern\n- Tea: green\n"
LINED = f"{USER}----\n"


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    made = Caller(memory_tools())
    made.context = ToolContext(memory_dir=str(tmp_path / "memory"))
    return made


def memory(caller: Caller) -> Path:
    return Path(caller.context.memory_dir or "")


async def read(caller: Caller, path: str, **more: Any) -> str:
    return str((await caller.ask("memory_read", {"path": path, **more})).result)


@pytest.mark.req("PMEM-03", "PMEM-04")
async def test_what_is_written_is_read(caller: Caller) -> None:
    assert await caller.do("memory_write", path="facts/user.md", content=USER) == {"path": "facts/user.md", "size": 56}
    assert await read(caller, "facts/user.md") == USER

    await caller.do("memory_write", path="facts/user.md", content="# Bob\n")
    assert await read(caller, "facts/user.md") == "# Bob\n"


@pytest.mark.req("PMEM-01", "PMEM-02")
async def test_the_index_has_paths_summaries_and_sizes(caller: Caller) -> None:
    await caller.do("memory_write", path="facts/user.md", content=USER)
    await caller.do("memory_write", path="episodes/2026-11.md", content="no summary ü")
    (memory(caller) / "facts" / "notes.txt").write_text("> Summary: not Markdown")
    (memory(caller) / ".git").mkdir()
    (memory(caller) / ".git" / "a.md").write_text("> Summary: not memory")

    result = await caller.ask("memory_list", {})

    assert result.result == [
        {"path": "episodes/2026-11.md", "summary": "", "size": 12},
        {"path": "facts/user.md", "summary": "Who Ann is", "size": 56},
    ]


@pytest.mark.req("PMEM-02")
async def test_a_memory_that_was_never_written_is_empty(caller: Caller) -> None:
    assert (await caller.ask("memory_list", {})).result == []


@pytest.mark.req("PMEM-05")
async def test_a_patch_changes_the_one_place(caller: Caller) -> None:
    await caller.do("memory_write", path="facts/user.md", content=USER)

    patched = await caller.do("memory_patch", path="facts/user.md", oldStr="City: Bern", newStr="City: Basel")

    assert patched["size"] == 57
    assert await read(caller, "facts/user.md") == USER.replace("Bern", "Basel")


@pytest.mark.req("PMEM-05")
@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("Paris", "String not found in facts/user.md"),
        ("Ann", "String appears multiple times in facts/user.md — provide more context to make it unique"),
        ("---", "String appears multiple times in facts/user.md — provide more context to make it unique"),
    ],
)
async def test_a_patch_of_what_is_missing_or_occurs_twice_changes_nothing(caller: Caller, old: str, said: str) -> None:
    await caller.do("memory_write", path="facts/user.md", content=LINED)

    error = await caller.refused("memory_patch", path="facts/user.md", old_str=old, new_str="x")

    assert said in error["message"]
    assert await read(caller, "facts/user.md") == LINED


@pytest.mark.req("PMEM-06")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "> Summary: New\n\n- b\n"),
        ("# A\n- a\n", "# A\n\n> Summary: New\n- a\n- b\n"),
        ("- a", "> Summary: New\n\n- a\n- b\n"),
        ("# A\n\n> Summary: Old\n\n- a\n", "# A\n\n> Summary: New\n\n- a\n- b\n"),
        (">Summary:Old\n- a\n> Summary: second\n", "> Summary: New\n- a\n> Summary: second\n- b\n"),
    ],
    ids=["a new file", "under the heading", "at the top", "in place of the old", "the first of two"],
)
async def test_an_entry_goes_to_the_end_and_the_summary_to_its_place(
    caller: Caller, before: str | None, after: str
) -> None:
    if before is not None:
        await caller.do("memory_write", path="facts/a.md", content=before)

    written = await caller.do("memory_append", path="facts/a.md", entry="- b\n", summary="New")

    assert await read(caller, "facts/a.md") == after
    assert written["size"] == len(after)


@pytest.mark.req("PMEM-06")
async def test_without_a_summary_the_old_one_stays(caller: Caller) -> None:
    await caller.do("memory_write", path="facts/user.md", content=USER)
    await caller.do("memory_append", path="facts/user.md", entry="- Cat: Mo\n")

    assert await read(caller, "facts/user.md") == USER + "- Cat: Mo\n"


@pytest.mark.req("PMEM-07", "PSEC-03")
@pytest.mark.parametrize("path", ["../x.md", "facts/../../x.md", "/etc/x.md", "a\0.md", "..", "link/x.md"])
@pytest.mark.parametrize("name", ["memory_read", "memory_write", "memory_patch", "memory_append"])
async def test_no_path_leads_out_of_the_folder(caller: Caller, tmp_path: Path, name: str, path: str) -> None:
    memory(caller).mkdir()
    (memory(caller) / "link").symlink_to(tmp_path)
    (tmp_path / "x.md").write_text("outside")
    more = {"content": "x", "old_str": "outside", "new_str": "x", "entry": "x"}
    known = caller.registry.find(name).shown_schema["properties"]

    error = await caller.refused(name, path=path, **{key: value for key, value in more.items() if key in known})

    assert f'Path "{path}" escapes memory directory'.replace("\0", "") in error["message"].replace("\0", "")
    assert (tmp_path / "x.md").read_text() == "outside"


@pytest.mark.req("PMEM-07")
def test_the_folder_itself_and_what_is_below_it_may_be_meant(tmp_path: Path) -> None:
    assert resolve_memory_path(".", str(tmp_path)) == str(tmp_path)
    assert resolve_memory_path("facts/../a.md", str(tmp_path)) == str(tmp_path / "a.md")
    with pytest.raises(ToolPermissionError, match="escapes memory directory"):
        resolve_memory_path("..", str(tmp_path))
    with pytest.raises(ToolPermissionError, match="escapes memory directory"):
        resolve_memory_path(f"../{tmp_path.name}-other/a.md", str(tmp_path))


@pytest.mark.parametrize("path", [".git/hooks/x.md", "facts/.hidden.md", "facts", "a.txt", ".", ".history/a.md/1.md"])
async def test_what_is_no_memory_is_neither_written_nor_read(caller: Caller, path: str) -> None:
    for name, more in (("memory_write", {"content": "x"}), ("memory_read", {})):
        error = await caller.refused(name, path=path, **more)
        assert error["error_code"] == "path_refused"


async def test_a_missing_file_is_reported(caller: Caller) -> None:
    for name, more in (("memory_read", {}), ("memory_patch", {"old_str": "a", "new_str": "b"})):
        error = await caller.refused(name, path="facts/none.md", **more)
        assert "not found" in error["message"]
        assert "memory_list" in error["message"]


async def test_without_a_folder_the_configuration_is_wrong() -> None:
    error = await Caller(memory_tools()).refused("memory_list")

    assert (error["error_code"], error["type"]) == ("memory_dir_missing", "ConfigError")


async def test_earlier_versions_are_kept_and_can_be_read(caller: Caller) -> None:
    for number in range(4):
        await caller.do("memory_write", path="facts/a.md", content=f"version {number}")
    await caller.do("memory_write", path="facts/a.md", content="version 3")

    assert [await read(caller, "facts/a.md", version=back) for back in range(4)] == [
        "version 3",
        "version 2",
        "version 1",
        "version 0",
    ]
    error = await caller.refused("memory_read", path="facts/a.md", version=4)
    assert "3 earlier versions" in error["message"]


@pytest.mark.programs
async def test_git_sees_the_files_and_not_their_history(caller: Caller) -> None:
    for number in range(2):
        await caller.do("memory_write", path="facts/a.md", content=f"{number}\n")
    git = ["git", "-C", str(memory(caller))]
    subprocess.run([*git, "init", "-q"], check=True)

    status = subprocess.run([*git, "status", "--porcelain", "-uall"], check=True, capture_output=True, text=True)

    assert status.stdout == "?? facts/a.md\n"


async def test_a_file_that_is_no_text_is_left_as_it_is(caller: Caller) -> None:
    (memory(caller) / "facts").mkdir(parents=True)
    (memory(caller) / "facts" / "a.md").write_bytes(b"caf\xe9")

    error = await caller.refused("memory_append", path="facts/a.md", entry="x")

    assert error["error_code"] == "encoding_wrong"
    assert await read(caller, "facts/a.md") == "caf\\xe9"
    assert (memory(caller) / "facts" / "a.md").read_bytes() == b"caf\xe9"


async def test_no_entry_is_lost_when_many_append_at_once(caller: Caller) -> None:
    await asyncio.gather(*(caller.do("memory_append", path="facts/log.md", entry=f"- {n}\n") for n in range(30)))

    lines = (await read(caller, "facts/log.md")).splitlines()

    assert sorted(lines) == sorted(f"- {n}" for n in range(30))


@pytest.mark.programs
async def test_no_entry_is_lost_when_several_processes_append(caller: Caller) -> None:
    command = warm.command(WRITER, str(memory(caller)))
    writers = [subprocess.Popen([*command, who, "15"], stdout=subprocess.DEVNULL) for who in "abc"]

    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    text = await read(caller, "facts/log.md")
    assert sorted(line for line in text.splitlines() if line.startswith("- ")) == sorted(
        f"- {who} {number}" for who in "abc" for number in range(15)
    )
    assert text.count("> Summary:") == 1


@pytest.mark.programs
async def test_a_writer_that_is_killed_leaves_whole_files_and_no_lock(caller: Caller) -> None:
    for _ in range(3):
        with warm.Program(WRITER, str(memory(caller)), "a", "100000") as writer:
            writer.stdout.readline()
            while not (memory(caller) / "facts" / "log.md").exists():
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            writer.kill()
        text = await read(caller, "facts/log.md")
        assert text.startswith("> Summary: a ")
        assert text.endswith("\n")
        await caller.do("memory_append", path="facts/log.md", entry="- after\n")


async def test_a_file_keeps_its_mode(caller: Caller) -> None:
    await caller.do("memory_write", path="facts/a.md", content="x")
    os.chmod(memory(caller) / "facts" / "a.md", 0o640)  # noqa: PTH101 - as the system sees it
    await caller.do("memory_append", path="facts/a.md", entry="y")

    assert (memory(caller) / "facts" / "a.md").stat().st_mode & 0o777 == 0o640


async def test_a_summary_with_a_million_spaces_is_read_like_any_other(caller: Caller) -> None:
    summary = f"a{' ' * 1_000_000}b"
    await caller.do("memory_write", path="facts/wide.md", content=f"# Wide\n\n>  Summary: {summary} \t\n")

    result = await caller.ask("memory_list", {})

    assert [one["summary"] for one in result.result] == [summary]


async def test_what_a_killed_writer_left_is_removed_by_the_next(caller: Caller) -> None:
    await caller.do("memory_write", path="facts/user.md", content="one")
    left = memory(caller) / "facts" / ".toolpost-0123456789abcdef.tmp"
    other = memory(caller) / "facts" / ".toolpost-mine.tmp"
    left.write_text("half")
    other.write_text("of somebody else's")

    await caller.do("memory_append", path="facts/user.md", entry="two")

    assert (left.exists(), other.exists()) == (False, True)
    assert await read(caller, "facts/user.md") == "one\ntwo"
