"""write_file and edit_file."""

import asyncio
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.builtin.caller import Caller
from toolpost.builtin.file_writing import writing_tools
from toolpost.contracts.errors import ToolValidationError

CALLER = Caller(writing_tools())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a.txt"


@pytest.mark.req("PFILE-02", "TEST-07")
async def test_a_file_is_written_in_folders_that_are_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.txt"

    found = await CALLER.do("write_file", path=str(path), content="hé\r\nllo\n")

    assert found == {"path": str(path), "bytes_written": 9, "encoding": "utf-8", "created": True}
    assert path.read_bytes() == "hé\r\nllo\n".encode()


@pytest.mark.req("PFILE-02")
async def test_an_old_file_is_replaced_and_keeps_its_mode(file: Path) -> None:
    file.write_text("old and longer")
    file.chmod(0o751)

    found = await CALLER.do("write_file", path=str(file), content="new")

    assert (file.read_text(), found["created"]) == ("new", False)
    assert stat.S_IMODE(file.stat().st_mode) == 0o751


async def test_a_new_file_has_the_mode_that_the_user_wants(file: Path) -> None:
    old = os.umask(0o027)
    try:
        await CALLER.do("write_file", path=str(file), content="x")
    finally:
        os.umask(old)

    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-8-sig", "latin-1"])
async def test_it_is_written_in_the_encoding_asked_for(file: Path, encoding: str) -> None:
    found = await CALLER.do("write_file", path=str(file), content="é\n", encoding=encoding)

    assert file.read_text(encoding) == "é\n"
    assert found["bytes_written"] == file.stat().st_size


@pytest.mark.parametrize(
    ("content", "encoding", "code"), [("€", "latin-1", "encoding_wrong"), ("a", "nope", "encoding_unknown")]
)
async def test_what_an_encoding_cannot_carry_is_refused_and_nothing_is_written(
    file: Path, content: str, encoding: str, code: str
) -> None:
    file.write_text("old")

    assert (await CALLER.refused("write_file", path=str(file), content=content, encoding=encoding))[
        "error_code"
    ] == code
    assert file.read_text() == "old"


async def test_whoever_reads_meanwhile_sees_the_old_or_the_new_and_never_a_part(file: Path) -> None:
    contents = ["a" * 300_000, "b" * 300_000]
    file.write_text(contents[0])
    seen: set[str] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            seen.add(file.read_text())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        for number in range(20):
            await CALLER.do("write_file", path=str(file), content=contents[number % 2])
    finally:
        stop.set()
        watching.join()

    assert seen <= set(contents)
    assert [path.name for path in file.parent.iterdir()] == ["a.txt"]


async def test_a_write_that_fails_leaves_nothing_behind(file: Path) -> None:
    file.mkdir()

    await CALLER.refused("write_file", path=str(file), content="x")
    await CALLER.refused("write_file", path=f"{file}/../a.txt", content="x")

    assert [path.name for path in file.parent.rglob("*")] == ["a.txt"]


@pytest.mark.req("PFILE-07")
async def test_edits_are_applied_in_order(file: Path) -> None:
    file.write_text("one two two")
    edits = [
        {"old_string": "one", "new_string": "1"},
        {"old_string": "two", "new_string": "2", "replace_all": True},
        {"old_string": "1 2", "new_string": "12"},
    ]

    assert await CALLER.do("edit_file", path=str(file), edits=edits) == {
        "path": str(file),
        "applied": 3,
        "replacements": 4,
    }
    assert file.read_text() == "12 2"


@pytest.mark.parametrize(
    "arguments",
    [
        {"old_string": "a", "new_string": "b"},
        {"oldString": "a", "newString": "b"},
        {"edits": [{"oldString": "a", "newString": "b", "replaceAll": False}]},
    ],
)
async def test_a_single_edit_and_camel_case_are_taken_too(file: Path, arguments: dict[str, Any]) -> None:
    file.write_text("a")

    await CALLER.do("edit_file", path=str(file), **arguments)

    assert file.read_text() == "b"


@pytest.mark.req("PFILE-07")
@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("absent", "old_string not found in file"),
        ("two", "old_string found 2 times, provide more context or set replace_all"),
    ],
)
async def test_when_one_edit_does_not_fit_none_is_applied(file: Path, old: str, said: str) -> None:
    file.write_text("one two two")
    before = file.stat()

    edits = [{"old_string": "one", "new_string": "1"}, {"old_string": old, "new_string": ""}]
    error = await CALLER.refused("edit_file", path=str(file), edits=edits)

    assert said in error["message"]
    assert "edit 2 of 2" in error["message"]
    assert (file.read_text(), file.stat().st_mtime_ns) == ("one two two", before.st_mtime_ns)


@pytest.mark.parametrize(
    "data",
    [b"\xef\xbb\xbfa\r\nb\r\n", "a\r\nb\r\n".encode("utf-16"), b"a\r\nb\xe9\r\n"],
    ids=["with a mark", "utf-16", "latin-1"],
)
async def test_encoding_mark_and_line_ends_stay_as_they_are(file: Path, data: bytes) -> None:
    file.write_bytes(data)

    await CALLER.do("edit_file", path=str(file), old_string="a\r\n", new_string="c\r\n")

    where = data.index(b"a")
    assert file.read_bytes() == data[:where] + b"c" + data[where + 1 :]


async def test_line_ends_that_do_not_fit_are_pointed_out(file: Path) -> None:
    file.write_bytes(b"a\r\nb\r\n")

    error = await CALLER.refused("edit_file", path=str(file), old_string="a\nb", new_string="c")

    assert r"its lines end with \r\n" in error["message"]


async def test_a_missing_a_binary_and_a_huge_file_are_not_edited(file: Path) -> None:
    edit = {"path": str(file), "old_string": "a", "new_string": "b"}

    assert (await CALLER.refused("edit_file", **edit))["error_code"] == "file_not_found"
    file.write_bytes(b"a\0b")
    assert (await CALLER.refused("edit_file", **edit))["error_code"] == "binary_file"
    os.truncate(file, 10 << 30)
    assert (await CALLER.refused("edit_file", **edit))["error_code"] == "file_too_large"


@pytest.mark.parametrize(
    "arguments",
    [{}, {"edits": []}, {"old_string": "a"}, {"new_string": "a"}, {"edits": [], "new_string": "a"}],
    ids=str,
)
async def test_no_edit_is_refused(file: Path, arguments: dict[str, Any]) -> None:
    file.write_text("a")

    assert (await CALLER.refused("edit_file", path=str(file), **arguments))["error_code"] == "edits_missing"


@pytest.mark.parametrize(
    "edit",
    [
        {"old_string": "", "new_string": "b"},
        {"old_string": "a"},
        {"old_string": "a", "oldString": "a", "new_string": "b"},
        {"old_string": "a", "new_string": "b", "all": True},
    ],
    ids=["empty", "half", "twice", "unknown"],
)
async def test_an_edit_of_the_wrong_shape_is_refused_before_anything_runs(file: Path, edit: dict[str, Any]) -> None:
    with pytest.raises(ToolValidationError):
        await CALLER.ask("edit_file", {"path": str(file), "edits": [edit]})


async def test_edits_at_the_same_time_are_all_kept(file: Path) -> None:
    file.write_text("".join(f"<{number}>" for number in range(20)))

    edits = [CALLER.do("edit_file", path=str(file), old_string=f"<{n}>", new_string=f"[{n}]") for n in range(20)]
    await asyncio.gather(*edits)

    assert file.read_text() == "".join(f"[{number}]" for number in range(20))


def test_a_model_sees_each_argument_once() -> None:
    entry = CALLER.registry.find("edit_file")

    assert [*entry.shown_schema["properties"]] == ["path", "edits", "old_string", "new_string", "replace_all"]
    assert [*entry.shown_schema["$defs"]["Edit"]["properties"]] == ["old_string", "new_string", "replace_all"]


async def test_a_text_that_occurs_again_in_itself_is_not_the_only_one(file: Path) -> None:
    file.write_text("a two two two b")

    error = await CALLER.refused("edit_file", path=str(file), old_string="two two", new_string="2")

    assert (error["error_code"], file.read_text()) == ("text_ambiguous", "a two two two b")


async def test_edits_that_would_fill_the_memory_are_refused(file: Path) -> None:
    file.write_text("a")
    edits = [{"old_string": "a", "new_string": "a" * 1000, "replace_all": True}] * 100

    error = await CALLER.refused("edit_file", path=str(file), edits=edits)

    assert (error["error_code"], "edit 3 of 100" in error["message"]) == ("file_too_large", True)
    assert file.read_text() == "a"
