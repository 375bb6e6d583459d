"""Whether a call would ask for an approval, without making it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from toolpost import Paused, Settings, Toolbox, ToolContext, tool
from toolpost.contracts.questions import CallPreview

POLICY = [
    {"action": "deny", "tools": ["close"]},
    {"action": "ask", "destructive": True, "approvals": {"answerers": ["acme:boss"], "four_eyes": True}},
    {"action": "allow"},
]
CALLED: list[str] = []


async def _preview(arguments: dict[str, Any], _context: ToolContext) -> CallPreview:
    return CallPreview(text=f"--- {arguments['name']}", destructive=arguments["name"] == "last")


@tool(side_effects="write", preview=_preview)
async def remove(name: str) -> str:
    """Remove a name."""
    CALLED.append(name)
    return name


@tool(side_effects="write")
async def close() -> str:
    """Close the shop."""
    CALLED.append("close")
    return "closed"


@pytest.fixture
async def box() -> AsyncIterator[Toolbox]:
    CALLED.clear()
    settings = Settings.model_validate({"data_dir": None, "policy": POLICY})
    async with Toolbox(tools=[remove, close], settings=settings) as box:
        yield box


@pytest.mark.req("FRAME-04")
async def test_the_question_is_that_of_the_call_and_nothing_runs_or_is_stored(box: Toolbox) -> None:
    asked = await box.would_ask("remove", {"name": "last"}, user="acme:ann")

    assert (CALLED, await box.pending.list(by="acme:boss"), await box.runs(user="acme:ann")) == ([], [], [])
    waiting = await box.call("remove", {"name": "last"}, user="acme:ann")
    assert isinstance(waiting, Paused)
    assert asked == waiting.question
    assert asked is not None
    assert (asked.payload["preview"], asked.answerers, asked.four_eyes) == ("--- last", ("acme:boss",), True)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("remove", {"name": "one of many"}),
        ("remove", '{"name": "one of many"}'),
        ("remove", {"name": 7}),
        ("remove", '{"name": '),
        ("remove", "[]"),
        ("remove", None),
        ("close", {}),
        ("unknown", {}),
    ],
)
async def test_a_call_that_runs_or_fails_does_not_ask(box: Toolbox, name: str, arguments: Any) -> None:
    assert await box.would_ask(name, arguments, user="acme:ann") is None
