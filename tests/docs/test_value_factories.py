"""The migration guide from separate value factories."""

import re

import pytest

from tests.docs.blocks import PAGES, ROOT
from toolpost.adapters import values

PAGE = ROOT / "docs" / "appendix/value-factories.md"


@pytest.mark.req("DOC-06", "KMIG-04")
def test_the_guide_names_every_deprecated_factory_and_what_takes_its_place() -> None:
    text = PAGE.read_text(encoding="utf-8")
    old = [name for name in values.__all__ if name.endswith("ToolValueFactory") and name != "ToolValueFactory"]

    assert PAGE in PAGES
    assert len(old) == 2
    assert [name for name in old if f"`{name}()`" not in text] == []
    assert "2.0 removes them" in text


@pytest.mark.req("KMIG-06")
def test_the_guide_records_the_four_decisions() -> None:
    decisions = PAGE.read_text(encoding="utf-8").partition("## Decisions")[2]

    asked = [" ".join(question.split()) for question in re.findall(r"\*\*(.+?\?)\*\*", decisions, re.DOTALL)]

    assert asked == [
        "Is there a base class for tool values?",
        "Does a value run itself, or does an executor dispatch?",
        "When are the old factories deprecated?",
        "Is the one factory used before KNIME's core has it?",
    ]
