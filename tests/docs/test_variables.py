"""The page of the configuration says what a variable that is not set does, and shows it."""

import pytest

from tests.docs.blocks import PAGES, ROOT, blocks, commands, page_name


@pytest.mark.req("AUTHS-06")
def test_what_a_variable_that_is_not_set_does_is_shown_by_an_example_that_is_run() -> None:
    page = ROOT / "docs" / "configuration.md"
    section = page.read_text(encoding="utf-8").partition("\n## Variables\n")[2].partition("\n## ")[0]
    shown = [
        command.shown
        for block in blocks(section, page=page_name(page))
        if block.language == "console"
        for command in commands(block)
    ]

    assert page in PAGES  # whose examples tests run
    assert "not set" in section
    assert any("not set" in text for text in shown)
