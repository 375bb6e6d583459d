"""move_file and delete_file."""

import ctypes
import os
import stat
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.builtin.caller import Caller
from toolpost.builtin.file_moves import moving_tools
from toolpost.builtin.file_writing import writing_tools
from toolpost.catalog.threads import run_in_thread

CALLER = Caller([*writing_tools(), *moving_tools()])
BINARY = bytes(range(256)) * 100


@pytest.fixture(params=["same", "other"], ids=["same file system", "other file system"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Path]:
    if request.param == "same":
        yield tmp_path / "there"
        return
    if not os.access("/dev/shm", os.W_OK) or Path("/dev/shm").stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder) / "there"


@pytest.mark.req("PFILE-05", "DEF-12")
async def test_a_file_is_moved_byte_by_byte_with_its_mode_and_time(tmp_path: Path, target: Path) -> None:
    source, new = tmp_path / "a.bin", target / "deep" / "b.bin"
    source.write_bytes(BINARY)
    source.chmod(0o640)
    os.utime(source, ns=(0, 1_700_000_000_000_000_000))

    found = await CALLER.do("move_file", **{"from": str(source), "to": str(new)})

    assert found == {"success": True, "from": str(source), "to": str(new)}
    assert (new.read_bytes(), source.exists()) == (BINARY, False)
    assert (stat.S_IMODE(new.stat().st_mode), new.stat().st_mtime) == (0o640, 1_700_000_000)
    assert [path.name for path in new.parent.iterdir()] == ["b.bin"]


async def test_a_file_that_is_there_is_replaced_only_when_that_is_said(tmp_path: Path, target: Path) -> None:
    source, new = tmp_path / "a", target
    source.write_text("new")
    new.write_text("old")
    paths = {"from": str(source), "to": str(new)}

    assert (await CALLER.refused("move_file", **paths))["error_code"] == "file_exists"
    assert (source.read_text(), new.read_text()) == ("new", "old")

    await CALLER.do("move_file", **paths, overwrite=True)
    assert (source.exists(), new.read_text()) == (False, "new")


@pytest.mark.req("PFILE-05")
async def test_a_folder_is_moved_with_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(BINARY)

    await CALLER.do("move_file", **{"from": f"{tmp_path}/a", "to": f"{tmp_path}/b/c"})

    assert (tmp_path / "b" / "c" / "x").read_bytes() == BINARY


async def test_a_link_is_moved_itself(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "link").symlink_to("a")

    await CALLER.do("move_file", **{"from": f"{tmp_path}/link", "to": f"{tmp_path}/link2"})

    assert (tmp_path / "link2").readlink() == Path("a")
    assert (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("source", "to", "code"),
    [
        ("missing", "b", "file_not_found"),
        ("a", "folder", "is_a_folder"),
        ("folder", "folder/inside", "path_refused"),
        ("..", "b", "path_refused"),
        ("a", "a/b", "not_a_folder"),
    ],
)
async def test_a_move_that_makes_no_sense_is_refused(tmp_path: Path, source: str, to: str, code: str) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "folder").mkdir()

    error = await CALLER.refused("move_file", **{"from": f"{tmp_path}/{source}", "to": f"{tmp_path}/{to}"})

    assert error["error_code"] in (code, "file_exists")
    assert (tmp_path / "a").read_text() == "x"


@pytest.mark.parametrize("side", ["from", "to"])
async def test_both_paths_must_be_allowed(tmp_path: Path, side: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("x")
    (tmp_path / "b").write_text("x")
    paths = {"from": f"{tmp_path}/in/a", "to": f"{tmp_path}/in/c", side: f"{tmp_path}/b"}

    error = await Caller(moving_tools(), [tmp_path / "in"]).refused("move_file", **paths, overwrite=True)

    assert "Permission denied" in error["message"]


@pytest.mark.req("PFILE-04")
async def test_a_file_is_deleted_once(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("x")

    assert await CALLER.do("delete_file", path=str(path)) == {"path": str(path), "deleted": True}
    assert await CALLER.do("delete_file", path=str(path)) == {"path": str(path), "deleted": False}
    assert not path.exists()


async def test_a_folder_is_deleted_only_when_that_is_said_and_links_in_it_are_not_followed(tmp_path: Path) -> None:
    folder, other = tmp_path / "folder", tmp_path / "other"
    for made in (folder / "deep", other):
        made.mkdir(parents=True)
        (made / "x").touch()
    (folder / "link").symlink_to(other)

    assert (await CALLER.refused("delete_file", path=str(folder)))["error_code"] == "is_a_folder"
    await CALLER.do("delete_file", path=str(folder), recursive=True)

    assert not folder.exists()
    assert (other / "x").exists()


@pytest.mark.parametrize("path", ["", "/", "/.", "/.."])
async def test_an_allowed_folder_itself_is_not_deleted(tmp_path: Path, path: str) -> None:
    error = await Caller(moving_tools(), [tmp_path]).refused("delete_file", path=f"{tmp_path}{path}", recursive=True)

    assert error["error_code"] == "path_refused"
    assert tmp_path.exists()


def test_moving_and_deleting_ask_a_person_first() -> None:
    specs = [CALLER.registry.find(name).spec for name in ("move_file", "delete_file")]

    assert [(spec.safety.destructive, spec.safety.file) for spec in specs] == [(True, True), (True, True)]


async def test_a_folder_is_not_moved_into_itself_and_nothing_is_made_there(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()

    error = await CALLER.refused("move_file", **{"from": str(tmp_path / "a"), "to": str(tmp_path / "a/b/c")})

    assert error["error_code"] == "path_refused"
    assert [*(tmp_path / "a").iterdir()] == []


async def test_a_file_that_cannot_be_taken_away_is_not_moved_at_all() -> None:
    with tempfile.TemporaryDirectory() as base:
        source, target = Path(base) / "closed" / "a", Path(base) / "open"
        for folder in (Path(base), source.parent, target):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)
        source.write_bytes(BINARY)
        async with as_nobody(source):
            error = await CALLER.refused("move_file", **{"from": str(source), "to": str(target / "b")})

        assert (error["error_code"], str(source) in error["message"]) == ("file_permission", True)
        assert (source.read_bytes(), [*target.iterdir()]) == (BINARY, [])


@asynccontextmanager
async def as_nobody(file: Path) -> AsyncGenerator[None]:
    """A folder that cannot be written by the worker thread that the next call runs in; the file in it is its own."""
    file.parent.chmod(0o555)
    if os.geteuid() == 0:
        os.chown(file, 65534, 65534)
        await run_in_thread(partial(ctypes.CDLL(None).setfsuid, 65534))
    try:
        yield
    finally:
        if os.geteuid() == 0:
            await run_in_thread(partial(ctypes.CDLL(None).setfsuid, 0))
        file.parent.chmod(0o777)
