"""The tools that work on files, together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.builtin.file_moves import moving_tools
from toolpost.builtin.file_reading import reading_tools
from toolpost.builtin.file_writing import writing_tools
from toolpost.builtin.listing import listing_tools
from toolpost.builtin.searching import searching_tools

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
        *moving_tools(),
        *listing_tools(),
        *searching_tools(ripgrep=ripgrep, commands=commands),
    ]
