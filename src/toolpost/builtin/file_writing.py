"""The tools write_file and edit_file. A file is replaced as a whole, and only if it is still the previewed one."""

from __future__ import annotations

import difflib
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.builtin.file_access import FileAccess, FilePath, OpenFile, display_path, file_changed_error, file_tool
from toolpost.builtin.file_previews import ABSENT, LARGEST_READ, check_unchanged, fingerprint, read_start
from toolpost.builtin.file_replacement import check_writable, locked_file, put_new, replace_file
from toolpost.builtin.text_encoding import decode_text, detect_encoding, encode_text, parse_encoding
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts.errors import ToolClientError
from toolpost.contracts.questions import CallPreview

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from toolpost.catalog.function import FunctionTool
    from toolpost.contracts.context import ToolContext

_SHOWN = 60
LARGEST = 64 << 20
_MOST_LINES = 2000
_LONGEST_PREVIEW = 64 << 10  # shortened again for display, after redaction


@with_config(ConfigDict(extra="forbid"))
class Edit(TypedDict):
    """One change."""

    old_string: Annotated[
        str, Field(min_length=1, validation_alias=either("old_string"), description="The exact text to replace")
    ]
    new_string: Annotated[str, Field(validation_alias=either("new_string"), description="The replacement")]
    replace_all: NotRequired[
        Annotated[bool, Field(validation_alias=either("replace_all"), description="Replace every occurrence")]
    ]


class WriteResult(TypedDict):
    """The number of bytes, and whether the file is new."""

    path: str
    bytes_written: int
    encoding: str
    created: bool


class EditResult(TypedDict):
    """The numbers of applied edits and of replaced places."""

    path: str
    applied: int
    replacements: int


async def preview_write(params: dict[str, Any], ctx: ToolContext) -> CallPreview:
    """Preview a write: nothing for a new file, a diff for an existing one."""
    access = FileAccess.of(ctx, "write_file", writes=True)
    encoding = parse_encoding(params.get("encoding", "utf-8"), tool_name=access.tool_name)
    data = encode_text(params["content"], encoding, tool_name=access.tool_name)
    return await run_cancellable(partial(_preview_write, access, params["path"], data))


def writing_tools() -> list[FunctionTool]:
    """Return the tools of this module."""
    return [with_camel_case(tool) for tool in (write_file, edit_file)]


@file_tool(side_effects="write", destructive=True, idempotent=True, preview=preview_write, timeout_s=30)
async def write_file(
    path: FilePath,
    content: Annotated[str, Field(description="The complete new content")],
    ctx: ToolContext,
    *,
    encoding: Annotated[str, Field(description="Such as utf-8, utf-16, latin-1")] = "utf-8",
) -> WriteResult:
    """Write a text file, replacing an existing one; missing folders are created.

    Overwriting a file may require approval; the approver sees the diff.
    The file is replaced atomically: after a crash, either the old or the new file exists.
    """
    access = FileAccess.of(ctx, "write_file", writes=True)
    chosen = parse_encoding(encoding, tool_name=access.tool_name)
    data = encode_text(content, chosen, tool_name=access.tool_name)
    created = await run_cancellable(partial(_write, access, path, data, ctx.preview))
    return {"path": path, "bytes_written": len(data), "encoding": chosen.name, "created": created}


@file_tool(side_effects="write", timeout_s=30)
async def edit_file(
    path: FilePath,
    ctx: ToolContext,
    *,
    edits: Annotated[list[Edit], Field(max_length=1000, description="The edits, applied in order, all or none")] = [],  # noqa: B006 - never changed
    old_string: Annotated[
        str | None,
        Field(min_length=1, validation_alias=either("old_string"), description="For a single edit"),
    ] = None,
    new_string: Annotated[str | None, Field(validation_alias=either("new_string"))] = None,
    replace_all: Annotated[bool, Field(validation_alias=either("replace_all"))] = False,
) -> EditResult:
    """Replace texts in a file. Each `old_string` must occur exactly once, unless `replace_all` is true.

    Either all edits are applied or none. The encoding, line ends and mode of the file are kept.
    """
    access = FileAccess.of(ctx, "edit_file", writes=True)
    all_edits = list(edits)
    if old_string is not None and new_string is not None:
        all_edits.append({"old_string": old_string, "new_string": new_string, "replace_all": replace_all})
    elif old_string is not None or new_string is not None or not all_edits:
        message = "give `edits`, or both `old_string` and `new_string`"
        raise access.refusal(message, "edits_missing")
    replacements = await run_cancellable(partial(_edit, access, path, all_edits))
    return {"path": path, "applied": len(all_edits), "replacements": replacements}


def _write(
    access: FileAccess, path: str, data: bytes, preview: CallPreview | None, check_cancelled: Callable[[], None]
) -> bool:
    """Write the previewed file; return whether it is new."""
    check_cancelled()
    with access.place(path, make=True) as place:
        old = check_writable(access, place)
        check = partial(check_unchanged, access, place, preview)
        # A file that appears after the preview was not part of the approval.
        put = partial(put_new, access) if preview is not None and old is None else None
        replace_file(place, [data], old=old, put=put, check=check)
    return old is None


def _preview_write(access: FileAccess, path: str, data: bytes, check_cancelled: Callable[[], None]) -> CallPreview:
    check_cancelled()
    try:
        with access.place(path) as place:
            status, state = check_writable(access, place), fingerprint(place)
            old = None if status is None or status.st_size > LARGEST_READ else read_start(place)
    except ToolClientError as refused:
        if refused.error_code != "file_not_found":  # a parent folder is missing and will be created
            raise
        return CallPreview(destructive=False, state=ABSENT)
    if status is None:
        return CallPreview(destructive=False, state=state)
    reason = f"it overwrites {display_path(path)!r} ({status.st_size} bytes)"
    check_cancelled()
    text = _diff(display_path(path), old, data, status.st_size)[:_LONGEST_PREVIEW]
    sizes = {"path": display_path(path), "old_size": status.st_size, "new_size": len(data)}
    return CallPreview(old != data, reason, text, state, sizes)


def _diff(name: str, old: bytes | None, new: bytes, size: int) -> str:
    before, after = _lines(old), _lines(new)
    if before is None or after is None:
        return f"{name}: {size} bytes are replaced by {len(new)} bytes, too many or no text for a comparison"
    lines = difflib.unified_diff(before, after, f"{name} (now)", f"{name} (new)", lineterm="")
    return "\n".join(line.rstrip("\r\n") for line in lines)


def _lines(data: bytes | None) -> list[str] | None:
    encoding = None if data is None else detect_encoding(data)
    if data is None or encoding is None:
        return None
    try:
        lines = encoding.decode(data).splitlines(keepends=True)
    except UnicodeDecodeError:
        return None
    return lines if len(lines) <= _MOST_LINES else None


def _edit(access: FileAccess, path: str, edits: Sequence[Edit], check_cancelled: Callable[[], None]) -> int:
    """Apply the edits under a lock on the file; return the number of changed places."""
    with locked_file(access, path, check_cancelled) as opened:
        check_writable(access, opened.place)
        if opened.status.st_size > LARGEST:
            message = (
                f"{display_path(path)!r} has {opened.status.st_size} bytes; files of more than 64 MB are not edited"
            )
            raise access.refusal(message, "file_too_large")
        data = opened.read()
        encoding = detect_encoding(data)
        if encoding is None:
            raise access.refusal(f"{display_path(path)!r} is a binary file; only texts can be edited", "binary_file")
        text, read_as = decode_text(data, encoding, path=display_path(path), tool_name=access.tool_name)
        new, replacements = apply_edits(text, edits, tool_name=access.tool_name)
        new_data = encode_text(new, read_as, tool_name=access.tool_name)
        check_cancelled()
        replace_file(opened.place, [new_data], old=opened.status, check=lambda: _check_same(access, opened))
    return replacements


def _check_same(access: FileAccess, opened: OpenFile) -> None:
    """Reject overwriting the changes of another program, which takes no lock."""
    now, then = opened.place.status_or_none(), opened.status
    if now is None or _identity(now) != _identity(then):
        raise file_changed_error(opened.place.path, tool_name=access.tool_name)


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def apply_edits(text: str, edits: Sequence[Edit], *, tool_name: str) -> tuple[str, int]:
    """Apply edits in order, each to the result of the previous; return the text and the number of changes."""
    replacements = 0
    for number, edit in enumerate(edits, 1):
        text, count = _apply_edit(text, edit, partial(_refusal, number, edits, tool_name=tool_name))
        replacements += count
    return text, replacements


def occurrences(text: str, part: str) -> int:
    """Count the occurrences of a text in another, including overlaps, up to 2."""
    first = text.find(part)
    if first < 0:
        return 0
    return 1 if text.find(part, first + 1) < 0 else 2


def _apply_edit(text: str, edit: Edit, refusal: Callable[..., ToolClientError]) -> tuple[str, int]:
    old, new = edit["old_string"], edit["new_string"]
    occurrence_count = occurrences(text, old)
    if occurrence_count == 0:
        raise refusal(f"old_string not found in file{_hint(text, old)}", code="text_not_found")
    count = text.count(old)
    if occurrence_count > 1 and not edit.get("replace_all", False):
        times = f"{count} times" if count > 1 else "more than once, overlapping itself"
        raise refusal(f"old_string found {times}, provide more context or set replace_all", code="text_ambiguous")
    # Repeated edits of this kind could exhaust the memory.
    if len(text) + count * (len(new) - len(old)) > LARGEST:
        raise refusal("the text would grow beyond 64 million characters", code="file_too_large")
    return text.replace(old, new), count


def _refusal(number: int, edits: Sequence[Edit], message: str, *, tool_name: str, code: str) -> ToolClientError:
    which = f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""
    start = edits[number - 1]["old_string"][:_SHOWN]
    text = f"{which}{message}; it begins {start!r}. Nothing was changed"
    return ToolClientError(text, tool_name=tool_name, code=code)


def _hint(text: str, old: str) -> str:
    r"""Explain why a text that looks right is not found: its lines end with \r\n."""
    if "\r\n" in text and "\r\n" not in old and old.replace("\n", "\r\n") in text:
        return r" (its lines end with \r\n: write that at the end of each)"
    return ""
