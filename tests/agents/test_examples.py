"""The examples on the planner's page run by themselves, each with no more above it than it needs."""

import re
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks
from tests.docs.reader import Reader, search_path

PAGES = ("planner.md", "planner-storage.md")
PAGE = "\n".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in PAGES)


@pytest.fixture
def reader(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    if request.node.get_closest_marker("programs"):
        monkeypatch.setenv("PATH", search_path())
    monkeypatch.setenv("WEATHER_API_KEY", "")  # the page sets them; afterwards they are gone again
    monkeypatch.setenv("GITHUB_CLIENT_SECRET", "")
    return Reader(tmp_path)


def section(heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the page has no section {heading!r}"
    assert "```text" in found[1], f"nothing is shown of what {heading!r} prints"
    return found[1]


def follow(reader: Reader, *headings: str) -> None:
    """Read these sections; what their programs print is compared with what they show."""
    for heading in headings:
        for block in blocks(section(heading), page="planner.md"):
            reader.follow(block)


@pytest.mark.req("EXA-07", "TEST-15")
def test_a_sign_in_without_a_network_pauses_and_continues(reader: Reader) -> None:
    follow(reader, "Pause and resume")


@pytest.mark.programs
@pytest.mark.req("EXA-01", "EXA-03", "EXA-04")
def test_functions_mcp_servers_and_utcp_manuals_stand_in_one_catalog(reader: Reader) -> None:
    follow(reader, "Tools of several sources")


@pytest.mark.programs
@pytest.mark.req("EXA-02", "OAUTH-05", "MISC-06")
def test_a_person_signs_in_by_the_callback_and_the_run_continues(reader: Reader) -> None:
    follow(reader, "Tools of several sources", "Sign-in with an OAuth manager")


@pytest.mark.req("DOC-01", "MISC-07")
def test_pauses_in_a_store_of_ones_own_are_resumed_by_another_worker(reader: Reader) -> None:
    follow(reader, "State store for several workers")
