"""Whoever has installed the program learns where its documents are."""

import re
from pathlib import Path

import pytest

from tests.cli.program import Run

pytestmark = pytest.mark.programs  # the demo starts some


@pytest.mark.parametrize("command", [("--help",), ("doctor",), ("demo",)])
def test_the_documents_are_named_and_are_there(toolpost: Run, command: tuple[str, ...]) -> None:
    done = toolpost(*command)

    shown = re.sub(r"[\s│]+", "", done.out + done.err)  # a line may be broken within the path
    found = re.search(r"(/[^:]*?/quickstart\.md)", shown)
    assert found is not None
    assert Path(found[1]).is_file()


def test_the_demo_names_no_file_that_is_not_installed(toolpost: Run) -> None:
    assert "README" not in toolpost("demo").out
