"""The tools move_file and delete_file."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from functools import partial
from io import FileIO
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import with_camel_case
from toolpost.builtin.file_access import (
    FileAccess,
    FilePath,
    OpenFile,
    Place,
    display_path,
    file_changed_error,
    file_tool,
    tool_error_from_os,
)
from toolpost.builtin.file_previews import ABSENT, check_unchanged, describe_entry, fingerprint, stale_preview_error
from toolpost.builtin.file_replacement import link_new, put_new, remove_old_name, replace_file, sync_folder
from toolpost.catalog.function import FunctionTool
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts.errors import ToolClientError
from toolpost.contracts.questions import CallPreview

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolpost.contracts.context import ToolContext

_BLOCK = 1 << 20
MoveResult = TypedDict("MoveResult", {"success": bool, "from": str, "to": str})


class DeleteResult(TypedDict):
    """Whether the path existed."""

    path: str
    deleted: bool


def moving_tools() -> list[FunctionTool]:
    """Return the tools of this module."""
    return [with_camel_case(tool) for tool in (delete_file, move_file)]


async def preview_delete(params: dict[str, Any], ctx: ToolContext) -> CallPreview:
    """Preview a deletion: the entry that would be lost."""
    access = FileAccess.of(ctx, "delete_file", writes=True)
    return await run_cancellable(
        partial(_preview_delete, access, params["path"], recursive=params.get("recursive", False))
    )


async def preview_move(params: dict[str, Any], ctx: ToolContext) -> CallPreview:
    """Preview a move: the entry that would be moved, and the one that would be overwritten."""
    access = FileAccess.of(ctx, "move_file", writes=True)
    overwrite = params.get("overwrite", False)
    return await run_cancellable(partial(_preview_move, access, params["from"], params["to"], overwrite=overwrite))


@file_tool(side_effects="write", destructive=True, idempotent=True, preview=preview_delete, timeout_s=60)
async def delete_file(
    path: FilePath,
    ctx: ToolContext,
    *,
    recursive: Annotated[bool, Field(description="Delete a folder with everything in it")] = False,
) -> DeleteResult:
    """Delete a file. For a link, delete the link and not its target. `deleted` is false if the path does not exist."""
    access = FileAccess.of(ctx, "delete_file", writes=True)
    deleted = await run_cancellable(partial(_delete, access, path, ctx.preview, recursive=recursive))
    return {"path": path, "deleted": deleted}


@file_tool(side_effects="write", destructive=True, preview=preview_move, timeout_s=120)
async def move_file(
    source: Annotated[str, Field(min_length=1, alias="from", description="The file or folder to move")],
    to: Annotated[str, Field(min_length=1, description="Its new path, with the new name")],
    ctx: ToolContext,
    *,
    overwrite: Annotated[bool, Field(description="Replace an existing file")] = False,
) -> MoveResult:
    """Move or rename a file or folder; missing folders of the new path are created."""
    access = FileAccess.of(ctx, "move_file", writes=True)
    await run_cancellable(partial(_move, access, source, to, ctx.preview, overwrite=overwrite))
    return {"success": True, "from": source, "to": to}


def _preview_delete(
    access: FileAccess, path: str, check_cancelled: Callable[[], None], *, recursive: bool
) -> CallPreview:
    check_cancelled()
    try:
        with access.place(path, follow=False) as place:
            status = place.status()
            _check_ours(access, place, status)
            _check_whole(access, place, status, recursive=recursive)
            lost = describe_entry(place, status)
            reason = f"it deletes {_first_line(lost)}"
            return CallPreview(destructive=True, reason=reason, text=f"Deletes {lost}", state=fingerprint(place))
    except ToolClientError as refused:
        if refused.error_code != "file_not_found":
            raise
        return CallPreview(destructive=False, state=ABSENT)


def _preview_move(
    access: FileAccess, source: str, to: str, check_cancelled: Callable[[], None], *, overwrite: bool
) -> CallPreview:
    check_cancelled()
    with access.place(source, follow=False) as old:
        status = old.status()
        _check_ours(access, old, status)
        text, state = f"Moves {describe_entry(old, status)}\nto {display_path(to)!r}", _source_state(status)
    reason = f"it moves {display_path(source)!r} to {display_path(to)!r}"
    try:
        with access.place(to, follow=False) as new:
            _check_free(access, new, overwrite=overwrite)
            there = new.status_or_none()
            if there is not None:
                lost = describe_entry(new, there)
                reason, text = f"{reason}, over {lost}", f"{text}\nOverwrites {lost}"
            return CallPreview(None, reason, text, f"{state} {fingerprint(new)}")
    except ToolClientError as refused:
        if refused.error_code != "file_not_found":
            raise
        return CallPreview(None, reason, text, f"{state} {ABSENT}")


def _source_state(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}:{status.st_mtime_ns}"


def _delete(
    access: FileAccess, path: str, preview: CallPreview | None, check_cancelled: Callable[[], None], *, recursive: bool
) -> bool:
    check_cancelled()
    try:
        with access.place(path, follow=False) as place:
            status = place.status()
            _check_ours(access, place, status)
            _check_whole(access, place, status, recursive=recursive)
            check_unchanged(access, place, preview)
            _remove(place, status)
            sync_folder(place)
    except ToolClientError as refused:
        if refused.error_code == "file_not_found":
            return False
        raise
    return True


def _remove(place: Place, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        shutil.rmtree(place.name, dir_fd=place.folder)
    else:
        os.unlink(place.name, dir_fd=place.folder)


def _check_whole(access: FileAccess, place: Place, status: os.stat_result, *, recursive: bool) -> None:
    if stat.S_ISDIR(status.st_mode) and not recursive:
        message = f"{display_path(place.path)!r} is a folder; set recursive to delete it with its content"
        raise access.refusal(message, "is_a_folder")


def _check_ours(access: FileAccess, place: Place, status: os.stat_result) -> None:
    """Reject an allowed folder itself, and anything that is not a file, folder or link."""
    if place.is_root:
        message = f"{display_path(place.path)!r} is an allowed folder; only its content can be moved or deleted"
        raise access.refusal(message, "path_refused")
    if stat.S_ISDIR(status.st_mode):
        access.check_on_disk(status, place.path)
    elif not stat.S_ISLNK(status.st_mode):
        access.check_regular(place, status)
    access.check_holds_nothing(place, status)


def _move(
    access: FileAccess,
    source: str,
    to: str,
    preview: CallPreview | None,
    check_cancelled: Callable[[], None],
    *,
    overwrite: bool,
) -> None:
    check_cancelled()
    with access.place(source, follow=False) as old:
        status = old.status()
        _check_ours(access, old, status)
        if stat.S_ISDIR(status.st_mode) and access.leads_into(to, old.real):
            message = f"{display_path(to)!r} lies in {display_path(source)!r}; a folder cannot be moved into itself"
            raise access.refusal(message, "path_refused")
        with access.place(to, follow=False, make=True) as new:
            _check_free(access, new, overwrite=overwrite)
            if preview is not None and preview.state != f"{_source_state(status)} {fingerprint(new)}":
                raise stale_preview_error(access, to)
            _rename(access, old, new, status, overwrite=overwrite)
            sync_folder(new)
            sync_folder(old)


def _check_free(access: FileAccess, new: Place, *, overwrite: bool) -> None:
    there = new.status_or_none()
    if new.is_root or (there is not None and stat.S_ISDIR(there.st_mode)):
        message = f"{display_path(new.path)!r} is a folder; write the new name as well, or another path"
        raise access.refusal(message, "is_a_folder")
    if there is not None and not overwrite:
        raise tool_error_from_os(FileExistsError(errno.EEXIST, ""), new.path, tool_name=access.tool_name)


def _rename(access: FileAccess, old: Place, new: Place, status: os.stat_result, *, overwrite: bool) -> None:
    try:
        if overwrite or stat.S_ISDIR(status.st_mode) or not link_new(access, old, new):
            os.rename(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder)
    except OSError as refused:
        if refused.errno != errno.EXDEV:
            raise
        if stat.S_ISDIR(status.st_mode):
            message = (
                f"{display_path(old.path)!r} is a folder, which cannot be moved to another file system; move its files"
            )
            raise access.refusal(message, "other_file_system") from refused
        _copy_over(access, old, new, overwrite=overwrite)


def _copy_over(access: FileAccess, old: Place, new: Place, *, overwrite: bool) -> None:
    """Move a file to another file system: copy it beside its new name, rename the copy, delete the original."""
    with access.open_file(old.path) as opened:
        if opened.place.real != old.real:
            message = f"{display_path(old.path)!r} is a link, and links are not moved to another file system"
            raise access.refusal(message, "other_file_system")
        if not os.access(os.curdir, os.W_OK, dir_fd=old.folder):
            raise tool_error_from_os(PermissionError(errno.EACCES, ""), old.path, tool_name=access.tool_name)
        put = None if overwrite else partial(put_new, access)
        replace_file(
            new, _blocks(opened.fd), old=opened.status, put=put, check=partial(_check_not_written, access, opened)
        )
        with_times = (opened.status.st_atime_ns, opened.status.st_mtime_ns)
        os.utime(new.name, ns=with_times, dir_fd=new.folder, follow_symlinks=False)
        remove_old_name(access, old, new)


def _check_not_written(access: FileAccess, opened: OpenFile) -> None:
    """Reject moving a file that was written to while it was copied."""
    now, then = os.fstat(opened.fd), opened.status
    if (now.st_size, now.st_mtime_ns) != (then.st_size, then.st_mtime_ns):
        raise file_changed_error(opened.place.path, tool_name=access.tool_name)


def _blocks(fd: int) -> Iterator[bytes]:
    with FileIO(fd, closefd=False) as file:
        while block := file.read(_BLOCK):
            yield block


def _first_line(text: str) -> str:
    return text.partition("\n")[0].rstrip(":")
