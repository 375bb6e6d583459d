"""A model sees the tools of a request as its provider accepts them, and its calls are those of the real tools."""

import json
import logging
import re
from typing import Any

import pytest

from tests.schema.test_provider_view import tool
from toolpost.schema.provider_schemas import ToolCompiler
from toolpost.schema.tool_view import ToolView, ToolViews

UNSHOWABLE = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Nowhere"}}}


def view_of(*tools: dict[str, Any]) -> ToolView:
    return ToolView(tools, ToolCompiler("openai"))


def test_calls_are_translated_by_the_tools_of_the_request() -> None:
    odd_tool = tool("files.read all", {"type": "object", "properties": {"$path": {"type": "string"}}})
    view = view_of(odd_tool, tool("add", {"type": "object", "properties": {"a": {}}}))
    shown = view.definitions[0].name

    name, arguments = view.call_to_model("files.read all", '{"$path": "ä"}')

    assert re.fullmatch(r"files_read_all_[0-9a-f]{8}", shown)
    assert name == shown
    assert list(arguments.values()) == ["ä"]
    assert "$path" not in arguments
    assert view.call_from_model(name, json.dumps(arguments)) == ("files.read all", '{"$path": "ä"}')
    assert view.call_from_model(shown, "{broken") == ("files.read all", "{broken")
    assert view.call_from_model("add", "") == ("add", "")
    assert [view.is_plain(one) for one in (shown, "add", "unknown")] == [False, True, True]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("", {}),
        (" ", {}),
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("{", {"unparsed": "{"}),
        ("[1]", {"unparsed": [1]}),
    ],
)
def test_arguments_of_an_earlier_call_are_always_an_object(arguments: Any, shown: Any) -> None:
    assert view_of(tool("add", {})).call_to_model("add", arguments) == ("add", shown)


def test_arguments_of_another_dialect_come_back_as_the_tool_takes_them() -> None:
    limit = tool("find", {"type": "object", "properties": {"limit": {"type": "integer"}}})
    view = ToolView([limit], ToolCompiler("openai-strict"))

    assert view.call_from_model("find", '{"limit": null}') == ("find", "{}")
    assert view.call_to_model("find", {}) == ("find", {"limit": None})


def test_a_tool_that_cannot_be_shown_is_logged_once_and_the_others_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    views, tools = ToolViews("openai-strict"), [tool("odd", UNSHOWABLE), tool("add", {})]

    with caplog.at_level(logging.WARNING):
        shown = [[one.name for one in views.view(tools).definitions] for _ in range(2)]

    assert shown == [["add"], ["add"]]
    assert [record.getMessage() for record in caplog.records] == [
        "tool 'odd' is left out: #/$defs/Nowhere: the reference leads nowhere"
    ]
