"""list_files and glob_files."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.builtin.caller import Caller
from toolpost.builtin.file_listing import listing_tools
from toolpost.contracts.errors import ToolValidationError

CALLER = Caller(listing_tools())
FILES = ["a.ts", "b.py", "sub/c.ts", "sub/deep/d.py", "sub/deep/e.tsx", "node_modules/x/f.ts", ".hidden/g.ts"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number, name in enumerate(FILES):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * number)
        os.utime(path, (number, number))
    return tmp_path


async def names(tool: str, tree: Path, **arguments: Any) -> list[str]:
    """The paths of what was found, below the folder."""
    return below(tree, await CALLER.do(tool, path=str(tree), **arguments))


def below(tree: Path, found: dict[str, Any]) -> list[str]:
    return [file["path"].removeprefix(f"{tree}/") for file in found["files"]]


@pytest.mark.req("PFILE-03")
async def test_a_folder_is_listed_with_its_folders(tree: Path) -> None:
    found = await CALLER.do("list_files", path=str(tree))

    assert [(file["name"], file["is_dir"]) for file in found["files"]] == [
        (".hidden", True),
        ("a.ts", False),
        ("b.py", False),
        ("node_modules", True),
        ("sub", True),
    ]
    assert found["files"][2] == {
        "name": "b.py",
        "path": f"{tree}/b.py",
        "is_dir": False,
        "is_link": False,
        "size": 1,
        "modified": 1000,
    }
    assert (found["total"], found["truncated"]) == (5, False)


@pytest.mark.req("PFILE-03", "PSEC-06")
async def test_the_folders_below_are_listed_when_that_is_said(tree: Path) -> None:
    found = await CALLER.do("list_files", path=str(tree), recursive=True, includeDirs=False)

    assert sorted(below(tree, found)) == sorted(FILES)
    assert sorted(file["name"] for file in found["files"]) == sorted(Path(name).name for name in FILES)


@pytest.mark.req("DEF-12")
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.ts", ["a.ts", "sub/c.ts", "node_modules/x/f.ts", ".hidden/g.ts"]),
        ("*.{py,tsx}", ["b.py", "sub/deep/d.py", "sub/deep/e.tsx"]),
        ("[a-c].*", ["a.ts", "b.py", "sub/c.ts"]),
        ("[!a-f].ts", [".hidden/g.ts"]),
        ("sub/**/*.py", ["sub/deep/d.py"]),
        ("**/deep/*", ["sub/deep/d.py", "sub/deep/e.tsx"]),
        (r"re:^[de]\.", ["sub/deep/d.py", "sub/deep/e.tsx"]),
        ("nothing", []),
    ],
)
async def test_names_are_chosen_by_a_glob_or_a_regular_expression(
    tree: Path, pattern: str, expected: list[str]
) -> None:
    found = await names("list_files", tree, recursive=True, include_dirs=False, pattern=pattern)

    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("pattern", ["re:[", "re:(a+)+$", "re:a*b*c*d", r"re:(a)\1", "{a,b}" * 9])
async def test_a_pattern_that_is_wrong_or_could_take_forever_is_refused(tree: Path, pattern: str) -> None:
    error = await CALLER.refused("list_files", path=str(tree), pattern=pattern)

    assert error["error_code"] == "pattern_invalid"


async def test_a_glob_with_many_stars_takes_no_time_on_a_long_name(tmp_path: Path) -> None:
    (tmp_path / ("a" * 255)).touch()

    assert await names("list_files", tmp_path, pattern="*a" * 50 + "b") == []


async def test_what_is_too_much_is_left_out_and_counted(tree: Path) -> None:
    found = await CALLER.do("list_files", path=str(tree), recursive=True, include_dirs=False, limit=2)

    assert [file["name"] for file in found["files"]] == ["a.ts", "b.py"]
    assert (found["total"], found["truncated"]) == (7, True)


async def test_links_are_listed_and_not_followed(tree: Path) -> None:
    (tree / "loop").symlink_to(tree)

    found = await CALLER.do("list_files", path=str(tree), recursive=True)

    assert [file["name"] for file in found["files"] if file["is_link"]] == ["loop"]
    assert not any(path.startswith("loop/") for path in below(tree, found))


async def test_a_name_that_is_no_text_is_listed_with_escapes(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")).touch()

    assert await names("list_files", tmp_path) == [r"caf\xe9"]


async def test_a_missing_folder_is_not_found(tmp_path: Path) -> None:
    assert (await CALLER.refused("list_files", path=str(tmp_path / "x")))["error_code"] == "file_not_found"


async def test_files_are_found_by_a_glob_with_the_newest_first(tree: Path) -> None:
    found = await CALLER.do("glob_files", path=str(tree), pattern="**/*.{ts,py}")

    assert below(tree, found) == [".hidden/g.ts", "sub/deep/d.py", "sub/c.ts", "b.py", "a.ts"]
    assert found["files"][1]["path"] == f"{tree}/sub/deep/d.py"
    assert found["files"][1]["name"] == "d.py"


async def test_a_glob_without_a_folder_is_one_of_the_folder_itself(tree: Path) -> None:
    assert await names("glob_files", tree, pattern="*.ts") == ["a.ts"]


async def test_generated_folders_are_searched_when_that_is_said(tree: Path) -> None:
    assert await names("glob_files", tree, pattern="**/f.ts") == []
    assert await names("glob_files", tree, pattern="**/f.ts", allFolders=True) == ["node_modules/x/f.ts"]


async def test_as_many_are_handed_on_as_asked_for(tree: Path) -> None:
    found = await CALLER.do("glob_files", path=str(tree), pattern="**", maxResults=2)

    assert (below(tree, found), found["total"], found["truncated"]) == (
        [".hidden/g.ts", "sub/deep/e.tsx"],
        6,
        True,
    )


@pytest.mark.parametrize("name", ["list_files", "glob_files"])
async def test_a_pattern_without_end_is_refused_before_anything_runs(tree: Path, name: str) -> None:
    with pytest.raises(ToolValidationError):
        await CALLER.ask(name, {"pattern": "[a" * 1000, "path": str(tree)})


@pytest.mark.parametrize("name", ["list_files", "glob_files"])
async def test_a_very_deep_tree_is_walked_with_few_openings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    levels = 400  # no more: what clears temporary folders away goes down by recursion
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(levels):
        for made in ("a", "b"):
            os.mkdir(made, dir_fd=folder)
        os.close(os.open("b/leaf", os.O_CREAT, dir_fd=folder))
        deeper = os.open("a", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.close(folder)
    opened, real_open = list[str](), os.open

    def counted(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        opened.append(path)
        return real_open(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", counted)

    found = await CALLER.do(
        name, path=str(tmp_path), pattern="**/leaf", **({"recursive": True} if name[0] == "l" else {})
    )

    assert found["total"] == levels
    assert len(opened) < 20 * levels
