"""One splitter for every stream of lines."""

import pytest

from toolpost.processes.line_splitter import LineSplitter


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("text", "universal", "lines"),
    [
        (b"one\ntwo\n\nthree", False, [b"one", b"two", b"", b"three"]),
        (b"one\r\ntwo\rthree", False, [b"one\r", b"two\rthree"]),
        (b"one\r\ntwo\rthree\n\r\n", True, [b"one", b"two", b"three", b"", b""]),
        (b"\r\r\n\n", True, [b"", b"", b"", b""]),
    ],
)
def test_lines_are_the_same_however_the_chunks_are_cut(
    text: bytes, lines: list[bytes], size: int, *, universal: bool
) -> None:
    splitter = LineSplitter(universal=universal)
    found = [line for at in range(0, len(text), size) for line in splitter.feed(text[at : at + size])]

    assert [*found, splitter.take_rest()] == lines
    assert splitter.pending_bytes == 0


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_line_over_the_limit_is_replaced_and_the_next_one_is_read(size: int) -> None:
    text = b"abcdef\nshort\n"
    splitter = LineSplitter(5, replace_long=lambda head, tail, length: b"%b..%b:%d" % (head[:1], tail[-1:], length))
    found = [line for at in range(0, len(text), size) for line in splitter.feed(text[at : at + size])]

    assert found == [b"a..f:6", b"short"]
