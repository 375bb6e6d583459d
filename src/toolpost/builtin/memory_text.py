"""What memory files are made of: a `> Summary:` line for the index, and the text around it."""

from __future__ import annotations

import re

from toolpost.builtin.file_writing import occurrences
from toolpost.contracts.errors import ToolClientError

_SUMMARY = re.compile(r"^>[ \t]*Summary:(.*)$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}[ \t].*$", re.MULTILINE)


def summary_of(text: str) -> str:
    """The first summary of a file; empty when it has none."""
    found = _SUMMARY.search(text)
    return found[1].strip() if found else ""


def with_summary(text: str, summary: str) -> str:
    """The text with this summary: in the place of the one it has, else under its first heading, else at its top."""
    line = f"> Summary: {' '.join(summary.split())}"
    found = _SUMMARY.search(text)
    if found:
        return f"{text[: found.start()]}{line}{text[found.end() :]}"
    heading = _HEADING.search(text)
    if heading:
        return f"{text[: heading.end()]}\n\n{line}{text[heading.end() :]}"
    return f"{line}\n\n{text}"


def appended(text: str | None, entry: str) -> str:
    """The text with an entry at its end; it begins on a line of its own."""
    if not text:
        return entry
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}{entry}"


def patched(text: str | None, path: str, old: str, new: str) -> str:
    """The text with one place changed, which must be the only one."""
    if text is None:
        raise ToolClientError(
            f"Memory file not found: {path!r}; memory_list shows what there is", code="file_not_found"
        )
    count = occurrences(text, old)
    if count == 1:
        return text.replace(old, new)
    if not count:
        message = f"String not found in {path}; memory_read shows what it holds now"
        raise ToolClientError(message, code="string_not_found")
    message = f"String appears multiple times in {path} — provide more context to make it unique"
    raise ToolClientError(message, code="string_ambiguous")
