"""Changes to a text: each replaces a passage that must be found exactly once, or all of its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from toolpost.builtin.spelling import either
from toolpost.contracts.errors import ToolClientError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN = 60


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
        old, count = edit["old_string"], text.count(edit["old_string"])
        if count == 0:
            raise _refusal(
                number, edits, f"old_string not found in file{_hint(text, old)}", tool_name, "text_not_found"
            )
        if count > 1 and not edit.get("replace_all", False):
            message = f"old_string found {count} times, provide more context or set replace_all"
            raise _refusal(number, edits, message, tool_name, "text_ambiguous")
        text = text.replace(old, edit["new_string"])
        replacements += count
    return text, replacements


def _refusal(number: int, edits: Sequence[Edit], message: str, tool_name: str, code: str) -> ToolClientError:
    which = f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""
    start = edits[number - 1]["old_string"][:_SHOWN]
    text = f"{which}{message}; it begins {start!r}. Nothing was changed"
    return ToolClientError(text, tool_name=tool_name, code=code)


def _hint(text: str, old: str) -> str:
    r"""Why a text that looks right may not be found: its lines end with \r\n, or it was copied with line numbers."""
    if "\r\n" in text and "\r\n" not in old and old.replace("\n", "\r\n") in text:
        return r" (its lines end with \r\n: write that at the end of each)"
    return ""
