"""Where calls may reach, and what they refuse to open, whichever tool is asked."""

import ctypes
import errno
import os
import socket
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.builtin.caller import Caller
from toolpost.builtin.loader import file_tools
from toolpost.catalog.threads import run_in_thread

READERS: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {}),
    ("get_file_info", {}),
    ("list_files", {}),
    ("grep_files", {"pattern": "x"}),
]
WRITERS: list[tuple[str, dict[str, Any]]] = [
    ("write_file", {"content": "x"}),
    ("edit_file", {"old_string": "a", "new_string": "b"}),
    ("delete_file", {}),
    ("glob_files", {"pattern": "*"}),
]
TOOLS = [pytest.param(name, more, id=name) for name, more in READERS + WRITERS]
OPENERS = [
    pytest.param(name, more, id=name)
    for name, more in READERS + WRITERS
    if name not in ("get_file_info", "glob_files", "list_files")
]


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("a secret")
    return folder


@pytest.fixture
def caller(inside: Path) -> Caller:
    return Caller(file_tools(), [inside])


@pytest.mark.req("PSEC-01", "PFILE-09", "TEST-07")
@pytest.mark.parametrize(("name", "more"), TOOLS)
@pytest.mark.parametrize("path", ["{}/../secret.txt", "/etc/passwd", "{}/sub/../../secret.txt", "{}x/secret.txt"])
async def test_a_path_outside_is_refused(
    caller: Caller, inside: Path, name: str, more: dict[str, Any], path: str
) -> None:
    error = await caller.refused(name, path=path.format(inside), **more)

    assert "Permission denied" in error["message"]
    assert "not in allowed paths" in error["message"]
    assert (error["type"], error["tool_name"]) == ("ToolPermissionError", name)


@pytest.mark.req("DEF-11")
@pytest.mark.parametrize(("name", "more"), [tool for tool in TOOLS if tool.id != "delete_file"])
async def test_a_link_that_leads_outside_is_refused(
    caller: Caller, inside: Path, name: str, more: dict[str, Any]
) -> None:
    (inside / "folder").symlink_to(inside.parent)
    (inside / "file").symlink_to(inside.parent / "secret.txt")

    for path in ("file", "folder/secret.txt", "folder"):
        error = await caller.refused(name, path=str(inside / path), **more)
        assert "Permission denied" in error["message"]
    assert (inside.parent / "secret.txt").read_text() == "a secret"


async def test_a_link_that_leads_outside_can_be_deleted_and_its_target_stays(caller: Caller, inside: Path) -> None:
    (inside / "file").symlink_to(inside.parent / "secret.txt")

    assert await caller.do("delete_file", path=str(inside / "file")) == {"path": str(inside / "file"), "deleted": True}

    assert not (inside / "file").is_symlink()
    assert (inside.parent / "secret.txt").exists()


@pytest.mark.req("DEF-11")
async def test_a_link_that_stays_inside_is_followed(caller: Caller, inside: Path) -> None:
    (inside / "real").mkdir()
    (inside / "real" / "a.txt").write_text("hello")
    (inside / "link").symlink_to("real")

    assert (await caller.do("read_file", path=f"{inside}/link/a.txt"))["content"] == "hello"
    await caller.do("write_file", path=f"{inside}/link/a.txt", content="new")

    assert (inside / "real" / "a.txt").read_text() == "new"
    assert (inside / "link").is_symlink()


@pytest.mark.req("DEF-11")
@pytest.mark.slow
async def test_a_link_that_is_swapped_in_meanwhile_never_leads_outside(caller: Caller, inside: Path) -> None:
    outside = inside.parent / "outside"
    for folder, text in ((inside / "real", "inside"), (outside, "outside")):
        folder.mkdir()
        (folder / "a.txt").write_text(text)
    stop = threading.Event()
    flipping = threading.Thread(target=partial(_flip, inside, outside, stop))
    flipping.start()
    seen: list[str] = []
    try:
        while len(seen) < 2000 or ("inside" not in seen and len(seen) < 20_000):
            result = await caller.ask("read_file", {"path": f"{inside}/d/a.txt"})
            seen.append(result.result["content"] if result.success else "refused")
    finally:
        stop.set()
        flipping.join()

    assert set(seen) == {"inside", "refused"}


def _flip(inside: Path, outside: Path, stop: threading.Event) -> None:
    """Have `d` be a folder and a link to one outside in turns, and nothing in between."""
    (inside / "real").rename(inside / "d")
    (inside / "link").symlink_to(outside)
    names = [os.fsencode(inside / name) for name in ("d", "link")]
    system = ctypes.CDLL(None)
    while not stop.is_set():
        system.renameat2(_HERE, names[0], _HERE, names[1], _EXCHANGE)


_HERE, _EXCHANGE = -100, 2


@pytest.mark.parametrize(("name", "more"), TOOLS)
@pytest.mark.parametrize("path", ["a\0b", "a\ud800", "\0"])
async def test_a_name_that_no_file_can_have_is_refused(
    caller: Caller, name: str, more: dict[str, Any], path: str
) -> None:
    error = await caller.refused(name, path=path, **more)

    assert error["error_code"] in ("path_refused", "validation_failed")
    assert "invalid in file names" in error["message"] or "ud800" in error["message"]


@pytest.mark.parametrize(("name", "more"), OPENERS)
@pytest.mark.parametrize("path", ["/proc/self/environ", "/proc/1/environ", "/sys/kernel/uevent_seqnum"])
async def test_files_of_the_kernel_are_never_opened(name: str, more: dict[str, Any], path: str) -> None:
    error = await Caller(file_tools()).refused(name, path=path, **more)

    assert error["error_code"] in ("path_refused", "file_permission")
    assert "Permission denied" in error["message"]


async def test_the_kernels_folders_are_not_listed_either() -> None:
    error = await Caller(file_tools()).refused("list_files", path="/proc/self")

    assert error["error_code"] == "path_refused"


@pytest.mark.parametrize(("name", "more"), OPENERS)
@pytest.mark.parametrize("kind", ["FIFO", "device", "socket"])
async def test_what_is_no_plain_file_is_refused_at_once(
    inside: Path, name: str, more: dict[str, Any], kind: str
) -> None:
    with _special(inside, kind) as path:
        error = await Caller(file_tools()).refused(name, path=path, **more)

    assert error["error_code"] == "not_a_file"
    assert f"is a {kind}" in error["message"]


@contextmanager
def _special(folder: Path, kind: str) -> Generator[str]:
    path = str(folder / "s")
    if kind == "device":
        yield "/dev/zero"
    elif kind == "FIFO":
        os.mkfifo(path)
        yield path
    else:
        here = os.open(folder, os.O_RDONLY)  # a socket's path must be short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/s")
            os.close(here)
            yield path


@pytest.mark.parametrize(("name", "more"), [tool for tool in OPENERS if tool.id != "grep_files"])
async def test_a_folder_where_a_file_is_meant_is_refused(
    caller: Caller, inside: Path, name: str, more: dict[str, Any]
) -> None:
    (inside / "sub").mkdir()

    error = await caller.refused(name, path=str(inside / "sub"), **more)

    assert error["error_code"] == "is_a_folder"
    assert (inside / "sub").is_dir()


@pytest.mark.parametrize("name", ["list_files", "glob_files"])
async def test_a_file_where_a_folder_is_meant_is_refused(caller: Caller, inside: Path, name: str) -> None:
    (inside / "a.txt").touch()

    more = {"pattern": "*"} if name == "glob_files" else {}
    assert (await caller.refused(name, path=str(inside / "a.txt"), **more))["error_code"] == "not_a_folder"


@pytest.mark.parametrize(
    ("name", "more"), [tool for tool in TOOLS if tool.id in ("read_file", "write_file", "list_files")]
)
async def test_a_file_that_may_not_be_touched_is_reported_as_such(name: str, more: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as base:
        closed = Path(base) / "closed"
        closed.mkdir(mode=0o700)
        (closed / "a.txt").write_text("x")
        Path(base).chmod(0o755)
        path = closed if name == "list_files" else closed / "a.txt"
        async with _as_nobody(closed):
            error = await Caller(file_tools()).refused(name, path=str(path), **more)

    assert error["error_code"] == "file_permission"
    assert error["message"].startswith("Permission denied: ")


class _as_nobody:  # noqa: N801 - reads as a word
    """The worker thread that the next call runs in touches files as somebody else; without being root, nobody can."""

    def __init__(self, closed: Path) -> None:
        self._closed = closed

    async def __aenter__(self) -> None:
        self._closed.chmod(0)
        if os.geteuid() == 0:
            await run_in_thread(partial(ctypes.CDLL(None).setfsuid, 65534))

    async def __aexit__(self, *_: object) -> None:
        if os.geteuid() == 0:
            await run_in_thread(partial(ctypes.CDLL(None).setfsuid, 0))
        self._closed.chmod(0o700)


@pytest.mark.parametrize(("name", "more"), TOOLS)
async def test_names_and_paths_that_are_too_long_are_reported(
    caller: Caller, inside: Path, name: str, more: dict[str, Any]
) -> None:
    result = await caller.ask(name, {"path": str(inside / ("n" * 300)), **more})

    assert not result.success
    assert result.error_info is not None
    assert result.error_info["error_code"] == "name_too_long"
    assert len(result.error_info["message"]) < 400


@pytest.mark.programs
async def test_without_a_path_the_first_allowed_folder_is_searched_where_the_working_folder_is_closed(
    caller: Caller, inside: Path
) -> None:
    (inside / "a.txt").write_text("needle")

    assert [file["name"] for file in (await caller.do("list_files"))["files"]] == ["a.txt"]
    assert (await caller.do("grep_files", pattern="needle"))["matches"][0]["file"] == f"{inside}/a.txt"


async def test_an_empty_list_of_folders_allows_nothing(inside: Path) -> None:
    error = await Caller(file_tools(), []).refused("read_file", path=str(inside))

    assert "not in allowed paths (none)" in error["message"]


@pytest.mark.parametrize(("name", "more"), TOOLS)
async def test_a_link_that_goes_while_it_is_resolved_is_reported(
    caller: Caller, inside: Path, monkeypatch: pytest.MonkeyPatch, name: str, more: dict[str, Any]
) -> None:
    (inside / "link").symlink_to("a.txt")

    def gone(path: str, **_: object) -> str:
        raise FileNotFoundError(errno.ENOENT, "", path)

    monkeypatch.setattr(os, "readlink", gone)
    result = await caller.ask(name, {"path": str(inside / "link" / "x"), **more})

    assert result.success or (result.error_info or {}).get("error_code") in ("file_not_found", "path_refused")
