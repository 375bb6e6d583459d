"""Tools that write one file: write_file and edit_file."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.atomic_files import check_writable, replace_file
from toolpost.builtin.edits import LARGEST, Edit, applied_edits
from toolpost.builtin.file_access import FileAccess, FilePath, Opened
from toolpost.builtin.file_failures import changed, shown
from toolpost.builtin.file_locks import locked
from toolpost.builtin.file_moves import put_new
from toolpost.builtin.file_previews import check_unchanged, preview_write
from toolpost.builtin.spelling import either, with_camel_case
from toolpost.builtin.text_encodings import decoded, encoded, encoding_named, encoding_of
from toolpost.builtin.workers import in_worker
from toolpost.catalog.function import FunctionTool, tool
from toolpost.contracts.context import ToolContext
from toolpost.contracts.spec import ToolCategory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolpost.contracts.questions import CallPreview


class Written(TypedDict):
    """What was written, and whether the file is new."""

    path: str
    bytes_written: int
    encoding: str
    created: bool


class Edited(TypedDict):
    """How many edits were applied, and how many places they changed."""

    path: str
    applied: int
    replacements: int


def writing_tools() -> list[FunctionTool]:
    """The tools of this module."""
    return [with_camel_case(made) for made in (write_file, edit_file)]


@tool(
    side_effects="write",
    destructive=True,
    idempotent=True,
    preview=preview_write,
    file=True,
    category=ToolCategory.FILE,
    tags=["builtin", "file"],
    timeout_s=30,
)
async def write_file(
    path: FilePath,
    content: Annotated[str, Field(description="The whole new content")],
    ctx: ToolContext,
    *,
    encoding: Annotated[str, Field(description="Such as utf-8, utf-16, latin-1")] = "utf-8",
) -> Written:
    """Write a text file, in place of an old one if there is one; missing folders are made.

    Over a file that is there a person may be asked first, who sees the difference.
    The file is replaced as a whole: nobody sees half of it, and after a crash the old or the new one is there.
    """
    access = FileAccess.of(ctx, "write_file", writes=True)
    chosen = encoding_named(encoding, tool_name=access.tool_name)
    data = encoded(content, chosen, tool_name=access.tool_name)
    created = await in_worker(partial(_write, access, path, data, ctx.preview))
    return {"path": path, "bytes_written": len(data), "encoding": chosen.told, "created": created}


@tool(side_effects="write", file=True, category=ToolCategory.FILE, tags=["builtin", "file"], timeout_s=30)
async def edit_file(
    path: FilePath,
    ctx: ToolContext,
    *,
    edits: Annotated[list[Edit], Field(max_length=1000, description="The edits, applied in order, all or none")] = [],  # noqa: B006 - never changed
    old_string: Annotated[
        str | None, Field(min_length=1, validation_alias=either("old_string"), description="For a single edit")
    ] = None,
    new_string: Annotated[str | None, Field(validation_alias=either("new_string"))] = None,
    replace_all: Annotated[bool, Field(validation_alias=either("replace_all"))] = False,
) -> Edited:
    """Change texts in a file. Each `old_string` must occur exactly once, unless `replace_all` is true.

    All edits are applied or none; what the file is encoded in, its line ends and its mode stay as they are.
    """
    access = FileAccess.of(ctx, "edit_file", writes=True)
    wanted = list(edits)
    if old_string is not None and new_string is not None:
        wanted.append({"old_string": old_string, "new_string": new_string, "replace_all": replace_all})
    elif old_string is not None or new_string is not None or not wanted:
        message = "give `edits`, or both `old_string` and `new_string`"
        raise access.refusal(message, "edits_missing")
    replacements = await in_worker(partial(_edit, access, path, wanted))
    return {"path": path, "applied": len(wanted), "replacements": replacements}


def _write(
    access: FileAccess, path: str, data: bytes, preview: CallPreview | None, goes_on: Callable[[], None]
) -> bool:
    """Write what was previewed and nothing else; whether the file is new."""
    goes_on()
    with access.place(path, make=True) as place:
        old = check_writable(access, place)
        check = partial(check_unchanged, access, place, preview)
        # A file that appears in the last moment is not one that anybody agreed to lose.
        put = partial(put_new, access) if preview is not None and old is None else None
        replace_file(place, [data], old=old, put=put, check=check)
    return old is None


def _edit(access: FileAccess, path: str, edits: Sequence[Edit], goes_on: Callable[[], None]) -> int:
    """Apply the edits under a lock on the file and return how many places changed."""
    with locked(access, path, goes_on) as opened:
        check_writable(access, opened.place)
        if opened.status.st_size > LARGEST:
            message = f"{shown(path)!r} has {opened.status.st_size} bytes; files of more than 64 MB are not edited"
            raise access.refusal(message, "file_too_large")
        data = _read(opened)
        encoding = encoding_of(data)
        if encoding is None:
            raise access.refusal(f"{shown(path)!r} is a binary file; only texts can be edited", "binary_file")
        text, read_as = decoded(data, encoding, path=shown(path), tool_name=access.tool_name)
        new, replacements = applied_edits(text, edits, tool_name=access.tool_name)
        written = encoded(new, read_as, tool_name=access.tool_name)
        goes_on()
        replace_file(opened.place, [written], old=opened.status, check=lambda: _check_same(access, opened))
    return replacements


def _read(opened: Opened) -> bytes:
    with os.fdopen(opened.fd, "rb", closefd=False) as file:
        return file.read()


def _check_same(access: FileAccess, opened: Opened) -> None:
    """Refuse to overwrite what somebody else has written since; what does not lock its files is caught here."""
    now, then = opened.place.status_or_none(), opened.status
    if now is None or _identity(now) != _identity(then):
        raise changed(opened.place.given, tool_name=access.tool_name)


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
