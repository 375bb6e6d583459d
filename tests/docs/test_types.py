"""The programs of the documents pass mypy's strict checks, as a reader with a checker pastes them."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT, Block, blocks, page_name
from tests.docs.reader import other_environment

pytestmark = pytest.mark.programs

CACHE = ROOT / ".mypy_cache" / "documents"


def test_every_program_of_the_documents_passes_the_strict_type_checker(tmp_path: Path) -> None:
    for number, batch in enumerate(_batches()):
        complaints = _checked(batch, tmp_path / str(number))

        assert complaints == ""


def test_a_program_that_is_not_typed_is_noticed(tmp_path: Path) -> None:
    complaints = _checked([Block("page.md", 7, "python", "def double(n):\n    return 2 * n\n")], tmp_path / "0")

    assert "page_7.py:1: error: Function is missing a type annotation" in complaints


def _batches() -> list[list[Block]]:
    """The Python blocks of all pages, in as few lots as there are files of one name."""
    lots: list[dict[str, Block]] = []
    for page in PAGES:
        found = blocks(page.read_text(encoding="utf-8"), page=page_name(page))
        programs = {
            _module(block): block for block in found if block.language == "python" and other_environment(block) is None
        }
        lot = next((one for one in lots if not one.keys() & programs.keys()), None)
        if lot is None:
            lots.append(programs)
        else:
            lot |= programs
    return [list(lot.values()) for lot in lots]


def _module(block: Block) -> str:
    """The file that a block says it is, or one named after its place."""
    return block.file_name or f"{Path(block.page).stem.replace('-', '_')}_{block.line}.py"


def _checked(programs: Iterable[Block], folder: Path) -> str:
    folder.mkdir()
    for block in programs:
        (folder / _module(block)).write_text(block.text, encoding="utf-8")
    options = ["--strict", "--config-file=", "--no-error-summary", "--python-executable", sys.executable]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", str(CACHE), "."],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout + done.stderr
