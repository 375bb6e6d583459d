"""Changes to a text: each replaces a passage that must be found exactly once, or all of its kind."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from toolpost.builtin.spelling import either
from toolpost.contracts.errors import ToolClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SHOWN = 60
LARGEST = 64 << 20


@with_config(ConfigDict(extra="forbid"))
class Edit(TypedDict):
    """One change."""

    old_string: Annotated[
        str, Field(min_length=1, validation_alias=either("old_string"), description="The text to replace, exactly")
    ]
    new_string: Annotated[str, Field(validation_alias=either("new_string"), description="The text in its place")]
    replace_all: NotRequired[
        Annotated[bool, Field(validation_alias=either("replace_all"), description="Replace every occurrence")]
    ]


def applied_edits(text: str, edits: Sequence[Edit], *, tool_name: str) -> tuple[str, int]:
    """The text after all edits, and how many places changed; each edit sees what those before it made."""
    replacements = 0
    for number, edit in enumerate(edits, 1):
        text, count = _applied(text, edit, partial(_refusal, number, edits, tool_name=tool_name))
        replacements += count
    return text, replacements


def occurrences(text: str, part: str) -> int:
    """How often a text occurs in another, also where it overlaps itself; 2 stands for more."""
    first = text.find(part)
    if first < 0:
        return 0
    return 1 if text.find(part, first + 1) < 0 else 2


def _applied(text: str, edit: Edit, refusal: Callable[..., ToolClientError]) -> tuple[str, int]:
    old, new = edit["old_string"], edit["new_string"]
    found = occurrences(text, old)
    if found == 0:
        raise refusal(f"old_string not found in file{_hint(text, old)}", code="text_not_found")
    count = text.count(old)
    if found > 1 and not edit.get("replace_all", False):
        times = f"{count} times" if count > 1 else "more than once, overlapping itself"
        raise refusal(f"old_string found {times}, provide more context or set replace_all", code="text_ambiguous")
    # Some edits of this kind after each other would fill any memory.
    if len(text) + count * (len(new) - len(old)) > LARGEST:
        raise refusal("the text would grow beyond 64 million characters", code="file_too_large")
    return text.replace(old, new), count


def _refusal(number: int, edits: Sequence[Edit], message: str, *, tool_name: str, code: str) -> ToolClientError:
    which = f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""
    start = edits[number - 1]["old_string"][:_SHOWN]
    text = f"{which}{message}; it begins {start!r}. Nothing was changed"
    return ToolClientError(text, tool_name=tool_name, code=code)


def _hint(text: str, old: str) -> str:
    r"""Why a text that looks right may not be found: its lines end with \r\n, or it was copied with line numbers."""
    if "\r\n" in text and "\r\n" not in old and old.replace("\n", "\r\n") in text:
        return r" (its lines end with \r\n: write that at the end of each)"
    return ""
