"""A page of the documents, taken apart into its blocks of code."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"^# (?P<name>[\w.-]+\.(?:py|yaml|toml|json))\n")
_PROMPT = "$ "


def page_name(page: Path) -> str:
    """The path of a page below docs; `../README.md` is that of the project."""
    return os.path.relpath(page, ROOT / "docs")


class Block(NamedTuple):
    """One block of code; a first line such as `# tools.py` says that it is a file."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file_name(self) -> str | None:
        found = _FILE_NAME.match(self.text)
        return found["name"] if found else None


class Command(NamedTuple):
    """One line that a reader types, and what is then on the screen."""

    line: str
    shown: str


def blocks(text: str, *, page: str) -> list[Block]:
    """The blocks of a page, in order."""
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found["language"], found["text"])
        for found in _FENCE.finditer(text)
    ]


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block; a line that ends in a backslash goes on."""
    for part in re.split(rf"^{re.escape(_PROMPT)}", block.text, flags=re.MULTILINE)[1:]:
        found = re.match(r"(?:.*\\\n)*.*\n?", part)
        typed = found[0] if found else part
        yield Command(typed.strip(), part.removeprefix(typed))
