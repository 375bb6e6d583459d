"""read_file and get_file_info."""

import os
import resource
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builtin.caller import Caller
from toolpost.builtin.file_reading import CONTENT_BYTES, reading_tools

CALLER = Caller(reading_tools())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a.txt"


@pytest.mark.req("PFILE-01", "TEST-07")
async def test_a_file_is_read_with_its_size_and_its_lines_counted(file: Path) -> None:
    file.write_bytes("one\ntwo é\nthree".encode())

    assert await CALLER.do("read_file", path=str(file)) == {
        "path": str(file),
        "content": "one\ntwo é\nthree",
        "size": 16,
        "encoding": "utf-8",
        "total_lines": 3,
        "offset": 0,
        "limit": 2000,
        "truncated": False,
        "next_offset": None,
        "line_cut": False,
    }


@pytest.mark.req("PFILE-09", "TEST-07")
async def test_a_missing_file_is_not_found(file: Path) -> None:
    error = await CALLER.refused("read_file", path=str(file))

    assert "not found" in error["message"]
    assert (error["error_code"], error["is_retryable"]) == ("file_not_found", False)


LINES = st.lists(st.text(alphabet="aé€\r 🙂", max_size=5), max_size=12)


@pytest.mark.req("PFILE-01")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    lines=LINES,
    ends=st.booleans(),
    offset=st.integers(0, 14),
    limit=st.integers(1, 5),
    codec=st.sampled_from(["utf-8", "utf-16"]),
)
async def test_any_lines_of_any_file_are_those_that_an_editor_shows(
    file: Path, lines: list[str], ends: bool, offset: int, limit: int, codec: str
) -> None:
    text = "\n".join(lines) + ("\n" if ends and lines else "")
    shown = text.split("\n")[: -1 if text.endswith("\n") or not text else None]
    file.write_bytes(text.encode(codec))

    found = await CALLER.do("read_file", path=str(file), offset=offset, limit=limit)

    assert found["content"].removesuffix("\n").split("\n") == (shown[offset : offset + limit] or [""])
    assert found["content"] in text
    assert found["total_lines"] == len(shown)
    assert found["truncated"] == (offset + limit < len(shown))
    assert found["next_offset"] == (offset + limit if found["truncated"] else None)


async def test_lines_can_be_numbered(file: Path) -> None:
    file.write_text("a\nb\nc\n")

    found = await CALLER.do("read_file", path=str(file), offset=1, limit=2, lineNumbers=True)

    assert found["content"] == "2\tb\n3\tc\n"


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"\xef\xbb\xbfcaf\xc3\xa9\n", "utf-8-sig"),
        ("café\n".encode("utf-16"), "utf-16-le"),
        (b"\xfe\xff" + "café\n".encode("utf-16-be"), "utf-16-be"),
        ("café\n".encode("utf-32"), "utf-32-le"),
        (b"caf\xe9\n", "latin-1"),
        (b"caf\xc3\xa9\n", "utf-8"),
    ],
)
async def test_the_encoding_is_seen_from_the_file_and_reported(file: Path, data: bytes, encoding: str) -> None:
    file.write_bytes(data)

    found = await CALLER.do("read_file", path=str(file))

    assert (found["content"], found["encoding"], found["size"]) == ("café\n", encoding, len(data))


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "UTF8", "shift_jis"])
async def test_an_encoding_can_be_asked_for(file: Path, encoding: str) -> None:
    file.write_bytes("ab\n12\n".encode(encoding))

    assert (await CALLER.do("read_file", path=str(file), encoding=encoding, offset=1))["content"] == "12\n"


@pytest.mark.parametrize(
    ("encoding", "code"),
    [
        ("utf-8", "encoding_wrong"),
        *((name, "encoding_unknown") for name in ("rot13", "x", "punycode", "idna", "unicode_escape", "x" * 5000)),
    ],
    ids=lambda value: value[:20],
)
async def test_an_encoding_that_is_wrong_is_reported(file: Path, encoding: str, code: str) -> None:
    file.write_bytes(b"caf\xe9")

    assert (await CALLER.refused("read_file", path=str(file), encoding=encoding))["error_code"] == code


async def test_a_binary_file_is_reported_as_such(file: Path) -> None:
    file.write_bytes(b"\x7fELF\0\0\0" + bytes(range(256)))

    error = await CALLER.refused("read_file", path=str(file))

    assert error["error_code"] == "binary_file"
    assert "binary file" in error["message"]


async def test_a_line_that_is_too_long_is_cut_and_reported_so(file: Path) -> None:
    file.write_text("é" * CONTENT_BYTES + "\nnext\n")

    found = await CALLER.do("read_file", path=str(file))

    assert (len(found["content"]), found["line_cut"], found["next_offset"]) == (CONTENT_BYTES // 2, True, 1)
    assert found["total_lines"] == 2
    assert (await CALLER.do("read_file", path=str(file), offset=1))["content"] == "next\n"


async def test_lines_of_ten_gigabytes_are_read_without_loading_them(file: Path) -> None:
    line = "x" * 99 + "\n"
    with file.open("wb") as out:
        out.write(line.encode() * 300_000)
        out.truncate(10 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    found = await CALLER.do("read_file", path=str(file), offset=200_000, limit=3)

    assert (found["content"], found["size"], found["next_offset"]) == (line * 3, 10 << 30, 200_003)
    assert (found["total_lines"], found["truncated"]) == (None, True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


@pytest.mark.slow
async def test_the_start_of_a_line_of_ten_gigabytes_is_read(file: Path) -> None:
    with file.open("wb") as out:
        out.truncate(10 << 30)

    found = await CALLER.do("read_file", path=str(file), encoding="latin-1")

    assert (len(found["content"]), found["line_cut"]) == (CONTENT_BYTES, True)
    assert (found["total_lines"], found["next_offset"]) == (None, 1)


async def test_a_file_that_is_rewritten_while_it_is_read_is_reported_and_can_be_read_again(file: Path) -> None:
    file.write_bytes((b"x" * 99 + b"\n") * 300_000)
    with file.open("r+b", buffering=0) as out, _repeating(lambda: os.pwrite(out.fileno(), b"y", 0)):
        results = [await CALLER.ask("read_file", {"path": str(file), "offset": 250_000}) for _ in range(10)]

    errors = [result.error_info for result in results if result.error_info is not None]
    assert {(error["error_code"], error["is_retryable"]) for error in errors} == {("file_changed", True)}
    assert (await CALLER.do("read_file", path=str(file), limit=1))["content"] == "y" + "x" * 98 + "\n"


async def test_a_file_that_only_grows_is_read_as_it_was(file: Path) -> None:
    file.write_bytes((b"x" * 99 + b"\n") * 500_000)
    with file.open("ab", buffering=0) as out, _repeating(lambda: out.write(b"more\n")):
        found = await CALLER.do("read_file", path=str(file), offset=400_000, limit=1)

    assert found["content"] == "x" * 99 + "\n"


@contextmanager
def _repeating(act: Callable[[], object]) -> Generator[None]:
    """Do something over and over in another thread."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            act()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.req("PFILE-06")
async def test_the_known_facts_of_a_file_are_reported(file: Path) -> None:
    file.write_text("hello")
    os.utime(file, ns=(0, 1_700_000_000_123_456_789))

    assert await CALLER.do("get_file_info", path=str(file)) == {
        "path": str(file),
        "exists": True,
        "size": 5,
        "modified": 1_700_000_000_123,
        "is_file": True,
        "is_directory": False,
    }
    assert (await CALLER.do("get_file_info", path=str(file.parent)))["is_directory"] is True


@pytest.mark.req("PFILE-06")
@pytest.mark.parametrize("name", ["missing", "no/such/folder/x", "a.txt/x"])
async def test_of_a_missing_file_it_is_reported_that_it_does_not_exist(file: Path, name: str) -> None:
    file.touch()

    found = await CALLER.do("get_file_info", path=str(file.parent / name))

    assert (found["exists"], found["size"], found["modified"]) == (False, None, None)
