"""JSON Patch: what each operation does, and what it says where it does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from toolpost.contracts.errors import ToolValidationError
from toolpost.schema.json_patch import apply_patch, has_value, parse_pointer, to_pointer

DOCUMENT: dict[str, Any] = {"to": ["ann", "bob"], "mail": {"a/b": 1, "~": 2}, "text": "hi"}


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        ({"op": "replace", "path": "/text", "value": None}, ("text",), None),
        ({"op": "add", "path": "/cc", "value": "eve"}, ("cc",), "eve"),
        ({"op": "add", "path": "/text", "value": "ho"}, ("text",), "ho"),
        ({"op": "remove", "path": "/text"}, None, None),
        ({"op": "add", "path": "/to/0", "value": "eve"}, ("to",), ["eve", "ann", "bob"]),
        ({"op": "add", "path": "/to/2", "value": "eve"}, ("to",), ["ann", "bob", "eve"]),
        ({"op": "add", "path": "/to/-", "value": "eve"}, ("to",), ["ann", "bob", "eve"]),
        ({"op": "replace", "path": "/to/1", "value": "eve"}, ("to",), ["ann", "eve"]),
        ({"op": "remove", "path": "/to/0"}, ("to",), ["bob"]),
        ({"op": "replace", "path": "/mail/a~1b", "value": 3}, ("mail",), {"a/b": 3, "~": 2}),
        ({"op": "remove", "path": "/mail/~0"}, ("mail",), {"a/b": 1}),
    ],
)
def test_a_change_changes_one_path_of_a_copy(change: dict[str, Any], path: tuple[str, ...] | None, value: Any) -> None:
    before = repr(DOCUMENT)
    changed = apply_patch(DOCUMENT, [change])

    assert repr(DOCUMENT) == before
    if path is None:
        assert "text" not in changed
    else:
        assert changed == {**DOCUMENT, path[0]: value}


def test_changes_apply_in_order_and_the_empty_path_is_the_whole() -> None:
    changes: list[dict[str, Any]] = [
        {"op": "replace", "path": "", "value": {"a": {}}},
        {"op": "add", "path": "/a/b", "value": [1]},
    ]
    assert apply_patch(DOCUMENT, changes) == {"a": {"b": [1]}}
    assert changes[0]["value"] == {"a": {}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"op": "replace", "path": "/txt", "value": 1},
            "nothing at '/txt': beside 'txt' there is 'to', 'mail', 'text'",
        ),
        ({"op": "remove", "path": "/to/2"}, "the list has 2 items"),
        ({"op": "add", "path": "/to/3", "value": 1}, "the list has 2 items"),
        ({"op": "replace", "path": "/to/-", "value": 1}, "the list has 2 items"),
        ({"op": "replace", "path": "/to/01", "value": 1}, "the list has 2 items"),
        ({"op": "add", "path": "/text/a", "value": 1}, "neither an object nor a list"),
        ({"op": "add", "path": "/no/a", "value": 1}, "nothing at '/no/a'"),
        ({"op": "remove", "path": ""}, "cannot be removed"),
        ({"op": "add", "path": "text", "value": 1}, "not a JSON Pointer"),
        ({"op": "add", "path": "/a~2", "value": 1}, "not a JSON Pointer"),
        ({"op": "copy", "path": "/a", "from": "/b"}, "add, replace, remove, not 'copy'"),
        ({"op": "add", "path": "/a"}, "no `value`"),
        ({"op": "add", "value": 1}, "no `path`"),
        ({"op": "add", "path": "/a", "value": 1, "form": 2}, "'form'"),
        ("text", "a change is an object"),
    ],
)
def test_a_change_that_does_not_fit_says_why(change: Any, says: str) -> None:
    with pytest.raises(ToolValidationError) as refused:
        apply_patch(DOCUMENT, [change])
    assert says in str(refused.value)


def test_changes_are_a_list() -> None:
    changes: Any = {"op": "remove", "path": "/text"}
    with pytest.raises(ToolValidationError, match="a list of JSON Patch operations"):
        apply_patch(DOCUMENT, changes)


def test_a_path_is_written_as_it_is_read() -> None:
    parts = ("a/b", "~1", "", "0")
    assert parse_pointer(to_pointer(parts)) == parts
    assert has_value(DOCUMENT, "/to/1")
    assert not has_value(DOCUMENT, "/to/2")
    assert not has_value(DOCUMENT, "/text/0")
