"""Other people's programs are pinned, and the lack of one is told."""

import json
import os
import re

import pytest

from tests import parts

PINNED = re.compile(r"[a-z0-9.-]+==[a-z0-9.]+|#.*")


def test_a_part_that_is_not_there_is_an_error_that_says_what_to_run() -> None:
    with pytest.raises(parts.PartMissingError, match=r"no/such/part is not installed; run: make setup"):
        parts.found("no/such/part")


def test_the_lists_of_parts_are_names_and_versions_only() -> None:
    lists = sorted((parts.ROOT / "tools" / "parts").glob("*.txt"))
    lines = [line for path in lists for line in path.read_text(encoding="utf-8").splitlines()]

    assert [path.stem for path in lists] == [
        "a2a",
        "deploy",
        "llm",
        "mcp1",
        "node24",
        "objects",
        "openai_agents",
        "rest",
        "utcp",
    ]
    assert [line for line in lines if not PINNED.fullmatch(line)] == []


def test_what_comes_from_npm_is_of_one_exact_version() -> None:
    wanted = json.loads((parts.ROOT / "package.json").read_text(encoding="utf-8"))["devDependencies"]

    assert [name for name, version in wanted.items() if not re.fullmatch(r"\d[\w.-]*", version)] == []


def test_a_program_measures_no_coverage_unless_a_test_asks_for_it() -> None:
    assert [name for name in os.environ if name.startswith("COVERAGE_")] == []
