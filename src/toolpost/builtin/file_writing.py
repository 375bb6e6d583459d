"""Tools that change files: write_file, edit_file, move_file and delete_file.

A file is replaced as a whole, under a lock, and only if it is still what a person was shown.
"""

from __future__ import annotations

import difflib
import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.builtin.file_access import (
    READ_FLAGS,
    FileAccess,
    FilePath,
    OpenFile,
    Place,
    display_path,
    file_changed_error,
    file_tool,
    tool_error_from_os,
)
from toolpost.builtin.file_reading import decode_text, detect_encoding, encode_text, parse_encoding
from toolpost.builtin.file_walk import walk
from toolpost.catalog.function import FunctionTool
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolClientError, ToolConflictError, ToolPermissionError, ToolServerError
from toolpost.contracts.questions import CallPreview

if sys.platform != "win32":
    import fcntl

_SHOWN = 60
LARGEST = 64 << 20
_MOST_LINES = 2000
_LONGEST_PREVIEW = 64 << 10  # whoever shows it cuts it once more, after secrets are taken out
_BLOCK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_PRIVATE, _USUAL = 0o600, 0o666
ABSENT = "absent"
LARGEST_READ = 1 << 20
_MOST_LISTED = 20
_MOST_ENTRIES = 10_000
# Systems that have no hard links, or do not let us make one.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})
_TEMPORARY = re.compile(r"\.toolpost-[0-9a-f]{16}\.tmp")
_WAIT_S = 10.0
_PAUSE_S = 0.01


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


class WriteResult(TypedDict):
    """What was written, and whether the file is new."""

    path: str
    bytes_written: int
    encoding: str
    created: bool


class EditResult(TypedDict):
    """How many edits were applied, and how many places they changed."""

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
    return [with_camel_case(tool) for tool in (write_file, edit_file, delete_file, move_file)]


@file_tool(side_effects="write", destructive=True, idempotent=True, preview=preview_write, timeout_s=30)
async def write_file(
    path: FilePath,
    content: Annotated[str, Field(description="The whole new content")],
    ctx: ToolContext,
    *,
    encoding: Annotated[str, Field(description="Such as utf-8, utf-16, latin-1")] = "utf-8",
) -> WriteResult:
    """Write a text file, in place of an old one if there is one; missing folders are made.

    Over a file that is there a person may be asked first, who sees the difference.
    The file is replaced as a whole: nobody sees half of it, and after a crash the old or the new one is there.
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
        str | None, Field(min_length=1, validation_alias=either("old_string"), description="For a single edit")
    ] = None,
    new_string: Annotated[str | None, Field(validation_alias=either("new_string"))] = None,
    replace_all: Annotated[bool, Field(validation_alias=either("replace_all"))] = False,
) -> EditResult:
    """Change texts in a file. Each `old_string` must occur exactly once, unless `replace_all` is true.

    All edits are applied or none; what the file is encoded in, its line ends and its mode stay as they are.
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
    """Write the file that was previewed; return whether it is new."""
    check_cancelled()
    with access.place(path, make=True) as place:
        old = check_writable(access, place)
        check = partial(check_unchanged, access, place, preview)
        # A file that appears in the last moment is not one that anybody agreed to lose.
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
        if refused.error_code != "file_not_found":  # a folder above it is missing, and will be made
            raise
        return CallPreview(destructive=False, state=ABSENT)
    if status is None:
        return CallPreview(destructive=False, state=state)
    reason = f"it overwrites {display_path(path)!r} ({status.st_size} bytes)"
    check_cancelled()
    return CallPreview(
        old != data, reason, _diff(display_path(path), old, data, status.st_size)[:_LONGEST_PREVIEW], state
    )


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
    """Apply the edits under a lock on the file and return how many places changed."""
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
    """Refuse to overwrite what another program, which takes no lock, has written since."""
    now, then = opened.place.status_or_none(), opened.status
    if now is None or _identity(now) != _identity(then):
        raise file_changed_error(opened.place.path, tool_name=access.tool_name)


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def apply_edits(text: str, edits: Sequence[Edit], *, tool_name: str) -> tuple[str, int]:
    """Apply edits in order, each to the result of those before; return the text and how many places changed."""
    replacements = 0
    for number, edit in enumerate(edits, 1):
        text, count = _apply_edit(text, edit, partial(_refusal, number, edits, tool_name=tool_name))
        replacements += count
    return text, replacements


def occurrences(text: str, part: str) -> int:
    """Count how often a text occurs in another, overlaps included, up to 2."""
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
    r"""Explain why a text that looks right is not found: its lines end with \r\n."""
    if "\r\n" in text and "\r\n" not in old and old.replace("\n", "\r\n") in text:
        return r" (its lines end with \r\n: write that at the end of each)"
    return ""


MoveResult = TypedDict("MoveResult", {"success": bool, "from": str, "to": str})


class DeleteResult(TypedDict):
    """Whether there was anything to delete."""

    path: str
    deleted: bool


async def preview_delete(params: dict[str, Any], ctx: ToolContext) -> CallPreview:
    """Preview a deletion: what would be lost."""
    access = FileAccess.of(ctx, "delete_file", writes=True)
    return await run_cancellable(
        partial(_preview_delete, access, params["path"], recursive=params.get("recursive", False))
    )


async def preview_move(params: dict[str, Any], ctx: ToolContext) -> CallPreview:
    """Preview a move: what would be moved, and what would be overwritten."""
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
    """Delete a file; a link is deleted itself, not what it leads to. `deleted` is false when nothing was there."""
    access = FileAccess.of(ctx, "delete_file", writes=True)
    deleted = await run_cancellable(partial(_delete, access, path, ctx.preview, recursive=recursive))
    return {"path": path, "deleted": deleted}


@file_tool(side_effects="write", destructive=True, preview=preview_move, timeout_s=120)
async def move_file(
    source: Annotated[str, Field(min_length=1, alias="from", description="The file or folder to move")],
    to: Annotated[str, Field(min_length=1, description="Its new path, with the new name")],
    ctx: ToolContext,
    *,
    overwrite: Annotated[bool, Field(description="Replace a file that is there already")] = False,
) -> MoveResult:
    """Move or rename a file or folder; missing folders of the new path are made."""
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


def _first_line(text: str) -> str:
    return text.partition("\n")[0].rstrip(":")


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
        message = f"{display_path(place.path)!r} is a folder; say recursive to delete it with everything in it"
        raise access.refusal(message, "is_a_folder")


def _check_ours(access: FileAccess, place: Place, status: os.stat_result) -> None:
    """Refuse an allowed folder itself, and what is no file, folder or link."""
    if place.is_root:
        message = (
            f"{display_path(place.path)!r} is an allowed folder itself; only what lies in it can be moved or deleted"
        )
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
    """Refuse to move a file that was written to while it was copied."""
    now, then = os.fstat(opened.fd), opened.status
    if (now.st_size, now.st_mtime_ns) != (then.st_size, then.st_mtime_ns):
        raise file_changed_error(opened.place.path, tool_name=access.tool_name)


def _blocks(fd: int) -> Iterator[bytes]:
    with FileIO(fd, closefd=False) as file:
        while block := file.read(_BLOCK):
            yield block


def replace_file(
    place: Place,
    blocks: Iterable[bytes],
    *,
    old: os.stat_result | None,
    put: Callable[[Place, str], None] | None = None,
    check: Callable[[], None] | None = None,
) -> int:
    """Write blocks to a temporary file and rename it to the place; return the number of bytes.

    Mode and owner of `old` are kept. `check` runs last before the rename, which `put` may replace.
    """
    above = "" if place.folder is not None else f"{Path(place.name).parent}{os.sep}"
    name = f"{above}.toolpost-{secrets.token_hex(8)}.tmp"
    size = 0
    fd = os.open(name, _NEW | _BINARY, _USUAL if old is None else _PRIVATE, dir_fd=place.folder)
    try:
        with os.fdopen(fd, "wb") as file:
            for block in blocks:
                size += file.write(block)
            file.flush()
            _keep_mode(file.fileno(), old)
            os.fsync(file.fileno())
        if check is not None:
            check()
        (put or _put)(place, name)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=place.folder)
        raise
    sync_folder(place)
    return size


def check_writable(access: FileAccess, place: Place) -> os.stat_result | None:
    """Return the status of a file that may be written; None when there is none."""
    if place.is_root:
        raise access.refusal(f"{place.path!r} is a folder; name a file in it", "is_a_folder")
    status = place.status_or_none()
    if status is None:
        return None
    access.check_regular(place, status)
    # A new file in its place would get round the mode of the old one.
    if not os.access(place.name, os.W_OK, dir_fd=place.folder, follow_symlinks=True):
        message = f"{place.path!r} may not be written by this process; check its mode and its owner"
        raise ToolPermissionError(message, tool_name=access.tool_name, code="file_permission")
    return status


def remove_leftovers(place: Place) -> None:
    """Remove temporary files of killed writers from the folder of a place; the caller must hold the folder's lock."""
    with suppress(OSError), _folder_handle(place) as fd, os.scandir(fd) as entries:
        for name in [entry.name for entry in entries if _TEMPORARY.fullmatch(entry.name)]:
            os.unlink(name, dir_fd=fd)


def sync_folder(place: Place) -> None:
    """Sync the folder of a place to the disk, where the file system can."""
    with suppress(OSError), _folder_handle(place) as fd:
        os.fsync(fd)


@contextmanager
def _folder_handle(place: Place) -> Generator[int]:
    """Open the folder of a place for reading: the handle of a place can only be walked through."""
    if place.folder is None:
        raise OSError("no handles of folders")
    fd = os.open(".", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0), dir_fd=place.folder)
    try:
        yield fd
    finally:
        os.close(fd)


def _put(place: Place, name: str) -> None:
    os.replace(name, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)


def _keep_mode(fd: int, old: os.stat_result | None) -> None:
    if old is None or not hasattr(os, "fchmod"):
        return
    now = os.fstat(fd)
    if (old.st_uid, old.st_gid) != (now.st_uid, now.st_gid):
        with suppress(OSError):  # only the superuser may give files away
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode))


@contextmanager
def locked_file(access: FileAccess, path: str, check_cancelled: Callable[[], None]) -> Generator[OpenFile]:
    """Open a file for reading and lock it against other edits, in this process and others."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        check_cancelled()
        with access.open_file(path) as opened:
            if _try_lock(opened.fd) and _is_current(opened):
                yield opened
                return
        if time.monotonic() > deadline:
            message = f"{display_path(path)!r} was held by somebody else for {_WAIT_S:g} s; nothing was written"
            raise ToolServerError(message, tool_name=access.tool_name, code="file_locked")
        time.sleep(_PAUSE_S)


@contextmanager
def folder_lock(access: FileAccess, folder: str, check_cancelled: Callable[[], None]) -> Generator[None]:
    """Lock a folder, so that one writer at a time changes its files; the lock ends with its process."""
    if sys.platform == "win32":  # No test covers it: Windows cannot open folders, so writers are not kept apart.
        yield
        return
    deadline = time.monotonic() + _WAIT_S
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while not _try_lock(fd):
            check_cancelled()
            if time.monotonic() > deadline:
                message = f"{display_path(folder)!r} was held by somebody else for {_WAIT_S:g} s; nothing was written"
                raise ToolServerError(message, tool_name=access.tool_name, code="file_locked")
            time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _is_current(opened: OpenFile) -> bool:
    """Return whether the locked file still has the name: the previous holder of the lock may have replaced it."""
    now = opened.place.status_or_none()
    return now is not None and (now.st_dev, now.st_ino) == (opened.status.st_dev, opened.status.st_ino)


def check_unchanged(access: FileAccess, place: Place, preview: CallPreview | None) -> None:
    """Refuse to go on where the file is not the one of the preview."""
    if preview is not None and preview.state != fingerprint(place):
        raise stale_preview_error(access, place.path)


def stale_preview_error(access: FileAccess, path: str) -> ToolConflictError:
    """Build the error for a file that changed after its preview; nothing was done."""
    message = f"{display_path(path)!r} was changed after it was looked at, and nothing was done; call the tool again"
    return ToolConflictError(message, tool_name=access.tool_name, code="file_changed")


def fingerprint(place: Place) -> str:
    """Return a digest of the file or folder at a place, which changes with it."""
    status = place.status_or_none()
    if status is None:
        return ABSENT
    digest = hashlib.sha256(f"{stat.S_IFMT(status.st_mode)} {status.st_size}".encode())
    if stat.S_ISDIR(status.st_mode):
        for line in _entries(place):
            digest.update(os.fsencode(line))
    elif stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_READ:
        digest.update(read_start(place))
    else:
        digest.update(f"{status.st_dev} {status.st_ino} {status.st_mtime_ns}".encode())
    return digest.hexdigest()


def describe_entry(place: Place, status: os.stat_result) -> str:
    """Describe a file, link or folder in a few words; of a folder also its first entries."""
    name = repr(display_path(place.path))
    if stat.S_ISLNK(status.st_mode):
        return f"the link {name}, and not what it leads to"
    if not stat.S_ISDIR(status.st_mode):
        return f"the file {name} ({status.st_size} bytes)"
    entries = [line.partition("\0")[0] for line in _entries(place)]
    count = f"{len(entries)} entries" if len(entries) < _MOST_ENTRIES else f"{_MOST_ENTRIES} entries or more"
    more = "" if len(entries) <= _MOST_LISTED else "\n  ..."
    listed = "".join(
        f"\n  {os.fsencode(entry).decode('utf-8', 'backslashreplace')}" for entry in entries[:_MOST_LISTED]
    )
    return f"the folder {name} with {count}{':' if listed else ''}{listed}{more}"


def read_start(place: Place) -> bytes:
    """Read the first `LARGEST_READ` bytes of a file, and one more if there is more."""
    fd = os.open(place.name, READ_FLAGS, dir_fd=place.folder)
    with FileIO(fd) as file:
        return file.read(LARGEST_READ + 1) or b""


def _entries(place: Place) -> Iterator[str]:
    """Yield the paths in a folder, each with its size and time of change."""
    count = 0
    fd = os.open(place.name, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0), dir_fd=place.folder)
    try:
        for listed in walk(fd):
            for entry in sorted(listed.entries, key=lambda entry: entry.name):
                count += 1
                if count > _MOST_ENTRIES:
                    return
                status = entry.stat(follow_symlinks=False)
                yield f"{listed.folder}{entry.name}\0{status.st_ino} {status.st_size} {status.st_mtime_ns}\n"
    finally:
        os.close(fd)


def put_new(access: FileAccess, place: Place, name: str) -> None:
    """Rename a finished file to its place, unless a file is there by now."""
    temporary = Place(place.folder, name, place.path, place.real)
    if not link_new(access, temporary, place):
        os.rename(name, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)


def link_new(access: FileAccess, old: Place, new: Place) -> bool:
    """Move a file by a hard link, which unlike a rename fails when the name is taken; False without hard links."""
    try:
        os.link(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder, follow_symlinks=False)
    except OSError as refused:
        if refused.errno in _NO_LINKS:
            return False
        raise
    remove_old_name(access, old, new)
    return True


def remove_old_name(access: FileAccess, old: Place, new: Place) -> None:
    """Remove the old name; on failure remove the new one instead, so that nothing was moved."""
    try:
        os.unlink(old.name, dir_fd=old.folder)
    except OSError as refused:
        os.unlink(new.name, dir_fd=new.folder)
        raise tool_error_from_os(refused, old.path, tool_name=access.tool_name) from refused
