"""A release is refused while its changelog says nothing about it."""

import re

import pytest

from tools.release import EXTRAS, ROOT, check_changelog


def test_a_version_with_an_entry_is_accepted() -> None:
    check_changelog("# Changes\n\n## 1.2.0 (2026-11-18)\n\n- Added: everything\n\n## 1.1.0\n", "1.2.0")


@pytest.mark.parametrize("text", ["# Changes\n", "## 1.2.0\n\n## 1.1.0\n\n- Added\n", "## 1.2.01\n\n- Added\n"])
def test_a_version_without_an_entry_is_refused_by_name(text: str) -> None:
    with pytest.raises(SystemExit, match=r"does not describe 1\.2\.0"):
        check_changelog(text, "1.2.0")


def test_the_tests_of_a_release_have_the_extras_of_the_others() -> None:
    found = re.search(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    assert set(found[1].split(",")) <= set(EXTRAS.split(","))
