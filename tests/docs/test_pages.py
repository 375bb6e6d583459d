"""Every page does what it says: its programs run, its files load, its commands print what is shown."""

import os
import re
from pathlib import Path
from unittest.mock import patch

import pytest
from opentelemetry import trace
from opentelemetry.util._once import Once

from tests.docs.blocks import PAGES, ROOT, Block, blocks, page_name
from tests.docs.reader import LOGIN, PageError, Reader, search_path


@pytest.mark.programs
@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_reader_who_follows_the_page_sees_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LOGNAME", LOGIN)
    monkeypatch.setenv("PATH", search_path())
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)  # one program sets it, which counts once for a process
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    reader = Reader(tmp_path)

    with patch.dict(os.environ):  # some programs set variables
        for block in blocks(page.read_text(encoding="utf-8"), page=page_name(page)):
            reader.follow(block)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_within_the_documents_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8"))

    broken = [target for target in targets if not _leads(page, *target)]

    assert broken == []


@pytest.mark.req("OAUTH-35")
def test_the_callback_in_a_server_of_ones_own_is_an_example_that_is_run() -> None:
    page = ROOT / "docs" / "accounts.md"
    programs = [block.text for block in blocks(page.read_text(encoding="utf-8"), page=page_name(page))]

    assert page in PAGES
    assert any("FastAPI(" in text and ".mount(" in text and "callback_app(" in text for text in programs)


def test_every_page_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    listed = index.read_text(encoding="utf-8")

    assert "(docs/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page_name(page) for page in PAGES[1:] if page != index and f"({page_name(page)})" not in listed] == []


@pytest.mark.programs
@pytest.mark.parametrize(
    ("language", "text", "complaint"),
    [
        ("console", "$ echo one\ntwo\n", "--- the page shows\ntwo\n--- it printed\none"),
        ("console", "$ false\n", "the last command left with 1"),
        ("console", "$ false\n$ true\n", "a command left with 1"),
        ("text", "what nobody printed\n", "what nobody printed"),
        ("perl", "print 1\n", "nobody checks a block of perl"),
    ],
)
def test_a_page_that_does_not_hold_is_noticed(tmp_path: Path, language: str, text: str, complaint: str) -> None:
    with pytest.raises(PageError, match=re.escape(complaint)):
        Reader(tmp_path).follow(Block("page.md", 1, language, text))


@pytest.mark.programs
def test_a_page_with_much_left_out_is_soon_found_to_be_wrong(tmp_path: Path) -> None:
    shown = "1 ..." + " a ..." * 30 + " b"

    with pytest.raises(PageError, match="it printed"):
        Reader(tmp_path).follow(Block("page.md", 1, "console", f"$ seq -s ' a ' 3000\n{shown}\n"))


@pytest.mark.programs
def test_an_id_that_was_shown_stands_for_the_real_one_from_then_on(tmp_path: Path) -> None:
    reader = Reader(tmp_path)

    reader.follow(Block("page.md", 1, "console", "$ echo ask_00ff is open\nask_1 is ...\n"))
    reader.follow(Block("page.md", 9, "console", "$ echo answered ask_1\nanswered ask_1\n"))

    with pytest.raises(PageError, match="it printed"):
        reader.follow(Block("page.md", 20, "console", "$ echo answered ask_0abc\nanswered ask_1\n"))


def _leads(page: Path, path: str, anchor: str) -> bool:
    target = (page.parent / path) if path else page
    if not target.exists():
        return False
    return not anchor or anchor in _anchors(target.read_text(encoding="utf-8"))


def _anchors(text: str) -> set[str]:
    """The names that headings get where Markdown is shown."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
