"""`toolpost lint`: what providers reject, and what cannot be shown to them."""

import json
from pathlib import Path

import pytest

from tests.cli.program import Run

pytestmark = pytest.mark.programs

TOOLS = '''
from toolpost import tool

MANY = {"type": "object", "properties": {"size": {}, **{f"p{n}": {"type": "string"} for n in range(5000)}}}


@tool(side_effects="pure")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(side_effects="pure", input_schema=MANY)
def choose(**options: str) -> str:
    """Choose."""
    return ""
'''


@pytest.fixture
def shop(home: Path) -> Path:
    (home / "tools.py").write_text(TOOLS)
    (home / "toolpost.yaml").write_text(
        "builtins: none\nsources:\n  - {name: shop, transport: python, connection: ./tools.py}\n"
    )
    return home


def test_every_provider_is_counted_and_a_tool_that_is_left_out_fails_the_command(toolpost: Run, shop: Path) -> None:
    done = toolpost("lint")

    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if "shop" in line or "none" in line}
    assert rows["anthropic"] == ["2", "0", "none"]
    assert rows["openai-strict"] == ["2", "0", "shop.choose"]
    assert done.code == 1


@pytest.mark.req("FRAME-07")
def test_a_provider_shows_the_tool_its_source_the_field_and_the_reason(toolpost: Run, shop: Path) -> None:
    done = toolpost("lint", "--provider", "gemini", "--json")

    document = json.loads(done.out)
    assert (done.code, document["status"], document["tools"]) == (0, "ok", 2)
    assert document["providers"]["gemini"] == [
        {
            "tool": "shop.add",
            "source": "shop",
            "field": "$.additionalProperties",
            "reason": "the keyword additionalProperties is not supported",
            "left_out": False,
        },
        {
            "tool": "shop.choose",
            "source": "shop",
            "field": "$.properties.size",
            "reason": "it has no single type and no alternatives",
            "left_out": False,
        },
    ]


def test_a_tool_that_is_left_out_is_shown_with_its_reason(toolpost: Run, shop: Path) -> None:
    done = toolpost("lint", "--provider", "openai-strict")

    assert "it has more than 5000 properties: left out" in done.out
    assert "1 of 2 tools are accepted as they are." in done.err
    assert done.code == 1


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("--provider", "acme"), "unknown provider 'acme'; use one of: openai, openai-strict", 2),
        (("--source", "acme"), "acme", 1),
    ],
)
def test_unknown_names_are_errors(toolpost: Run, shop: Path, words: tuple[str, ...], said: str, code: int) -> None:
    done = toolpost("lint", *words)

    assert said in done.err
    assert done.code == code
