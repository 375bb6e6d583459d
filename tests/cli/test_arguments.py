"""Arguments of `toolpost tools call` as NAME=VALUE, and what cannot be one."""

from pathlib import Path

import pytest

from tests.cli.program import Run

TOOLS = '''
from typing import Any

from toolpost import tool


@tool(side_effects="pure")
def echo(zip: str, count: int = 1, tags: list[str] = [], where: dict[str, Any] = {}) -> dict[str, Any]:
    """Give back what came."""
    return {"zip": zip, "count": count, "tags": tags, "where": where}
'''


@pytest.fixture
def echo(home: Path) -> tuple[str, ...]:
    (home / "tools.py").write_text(TOOLS)
    return ("tools", "call", "local.echo", "--json")


def test_values_are_text_where_text_is_wanted_and_json_elsewhere(toolpost: Run, echo: tuple[str, ...]) -> None:
    done = toolpost(*echo, "zip=01234", "count=3", 'tags=["a"]', "where.city=Bergen", "where.floor=2")

    where = {"city": "Bergen", "floor": 2}
    assert done.json["content"] == {"zip": "01234", "count": 3, "tags": ["a"], "where": where}


def test_pairs_stand_beside_json_and_their_value_may_hold_anything(toolpost: Run, echo: tuple[str, ...]) -> None:
    done = toolpost(*echo, "zip=a=b c", "--args", '{"count": 2}')

    assert (done.json["content"]["zip"], done.json["content"]["count"]) == ("a=b c", 2)


def test_a_value_that_does_not_fit_is_a_failed_call(toolpost: Run, echo: tuple[str, ...]) -> None:
    done = toolpost(*echo, "zip=1", "count=many")

    assert (done.code, done.json["error"]["error_code"]) == (1, "validation_failed")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["zip"], "'zip' is not NAME=VALUE"),
        (["=1"], "'=1' is not NAME=VALUE"),
        (["zip=1", "zip=2"], "zip is repeated"),
        (["zip=1", "--args", '{"zip": "2"}'], "zip is repeated"),
        (["zip=1", "zip.code=2"], "zip.code: 'zip' is not an object"),
        (["zip=1", "--args", "[]"], "the arguments must be an object"),
    ],
)
def test_what_is_no_pair_is_a_wrong_command_line(
    toolpost: Run, echo: tuple[str, ...], words: list[str], said: str
) -> None:
    done = toolpost(*echo, *words)

    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_the_hint_of_a_tool_names_what_it_needs(toolpost: Run, echo: tuple[str, ...]) -> None:
    assert "`toolpost tools call local.echo zip=...` calls it." in toolpost("tools", "show", "local.echo").err
