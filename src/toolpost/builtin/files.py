"""The tools that work on files, together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.builtin.file_listing import listing_tools
from toolpost.builtin.file_moves import move_tools
from toolpost.builtin.file_reading import reading_tools
from toolpost.builtin.file_search import search_tools
from toolpost.builtin.file_writing import writing_tools

if TYPE_CHECKING:
    from toolpost.catalog.function import FunctionTool
    from toolpost.processes.commands import CommandRunner


def file_tools(*, ripgrep: str | None = "rg", commands: CommandRunner | None = None) -> list[FunctionTool]:
    """All of them; `ripgrep` names the program that searches, and None stands for our own search.

    Searches start faster with `commands`, which whoever made them closes.
    """
    return [
        *reading_tools(),
        *writing_tools(),
        *move_tools(),
        *listing_tools(),
        *search_tools(ripgrep=ripgrep, commands=commands),
    ]
