"""JSON as editors write it, and what is said when it is broken."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost import ConfigError
from toolpost.connecting.lenient_json import read_lenient_json, strict_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mcp.json"


def test_comments_and_trailing_commas_are_read_over_but_not_within_texts(file: Path) -> None:
    file.write_text(
        """\ufeff{
          // "url": "https://old.example",
          "url": "https://a.example//b", /* two
          lines */ "glob": "/* no comment */ , ]",
          "quote": "\\" // still text",
          "list": [1, 2, /* last */ ],
        }"""
    )

    assert read_lenient_json(file) == {
        "url": "https://a.example//b",
        "glob": "/* no comment */ , ]",
        "quote": '" // still text',
        "list": [1, 2],
    }


@given(VALUES)
def test_what_is_strict_already_stays_as_it_is(value: object) -> None:
    written = json.dumps(value, ensure_ascii=False, indent=1)

    assert strict_json(written) == written


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{\n  // fine\n  "a": 1\n  "b": 2\n}', "line 4, column 3"),
        ('{"a": [1, 2,, 3]}', "line 1, column 13"),
        ('{\n"a": "open\n}', "line 2, column 11"),
        ("{ /* never closed", "line 1, column"),
        ("", "line 1, column 1"),
    ],
)
def test_a_mistake_is_told_by_file_line_and_column(file: Path, text: str, place: str) -> None:
    file.write_text(text)

    with pytest.raises(ConfigError, match="this is not JSON") as caught:
        read_lenient_json(file)

    assert str(caught.value).startswith(f"{file}, {place}")


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b'{"a": 1, "a": 2}', "key 'a' is there twice"),
        (b'{"a": "\xff"}', "is not UTF-8 text (byte 7)"),
        (b"[" * 100_000, "is nested too deeply"),
        (b" " * (32 * 1024 * 1024 + 1), "is larger than"),
    ],
)
def test_what_cannot_be_read_is_told(file: Path, raw: bytes, told: str) -> None:
    file.write_bytes(raw)

    with pytest.raises(ConfigError) as caught:
        read_lenient_json(file)

    assert told in str(caught.value)


def test_a_file_that_is_not_there_is_told(file: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        read_lenient_json(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_lenient_json(file.parent)
