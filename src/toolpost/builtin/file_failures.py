"""What the system says about a file, in words that tell what to do next."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from toolpost.contracts.errors import ToolClientError, ToolError, ToolPermissionError, ToolServerError

if TYPE_CHECKING:
    from collections.abc import Generator


class _Telling(NamedTuple):
    code: str
    message: str


_TELLINGS = {
    errno.ENOENT: _Telling("file_not_found", "File not found: {path!r}; list_files shows what is there"),
    errno.ENOTDIR: _Telling("not_a_folder", "A part of {path!r} is no folder, or is a new link; check the path"),
    errno.ELOOP: _Telling("path_refused", "{path!r} leads through links in a circle, or a new one; check the path"),
    errno.EISDIR: _Telling("is_a_folder", "{path!r} is a folder, not a file; name a file in it, or use list_files"),
    errno.EEXIST: _Telling("file_exists", "{path!r} exists already; choose another name, or say overwrite"),
    errno.ENOTEMPTY: _Telling("folder_not_empty", "{path!r} is not empty; say recursive to delete all of it"),
    errno.ENAMETOOLONG: _Telling("name_too_long", "The path {path!r} is longer than a name may be; shorten it"),
    errno.ENOSPC: _Telling("disk_full", "There is no room left for {path!r}; nothing was changed, make room first"),
    errno.EROFS: _Telling("read_only", "{path!r} lies on a file system that cannot be written"),
    errno.EINVAL: _Telling("path_refused", "{path!r} cannot be used this way; check both paths"),
}
_NO_FOLDER = _Telling("file_not_found", "Folder not found: {path!r}; write_file makes it with the first file in it")
_SHOWN = 200


@contextmanager
def told_failures(path: str, *, tool_name: str) -> Generator[None]:
    """Turn what the system refuses inside into errors of the tool."""
    try:
        yield
    except OSError as refused:
        raise failure_of(refused, path, tool_name=tool_name) from refused


def failure_of(refused: OSError, path: str, *, tool_name: str) -> ToolError:
    """The error that stands for what the system said about a path."""
    if refused.errno in (errno.EACCES, errno.EPERM):
        message = f"the system does not let this process touch {shown(path)!r}; check its mode and its owner"
        return ToolPermissionError(message, tool_name=tool_name, code="file_permission")
    telling = _NO_FOLDER if _is_missing_folder(refused, tool_name) else _TELLINGS.get(refused.errno or 0)
    if telling is None:
        message = f"{shown(path)!r}: {refused.strerror or refused}"
        return ToolServerError(message, tool_name=tool_name, code="file_error")
    return ToolClientError(telling.message.format(path=shown(path)), tool_name=tool_name, code=telling.code)


def _is_missing_folder(refused: OSError, tool_name: str) -> bool:
    return refused.errno == errno.ENOENT and tool_name in {"list_files", "glob_files"}


def changed(path: str, *, tool_name: str) -> ToolServerError:
    """Somebody else wrote the file in the meantime; nothing of ours was written."""
    message = f"{shown(path)!r} was changed by somebody else meanwhile; read it again, then repeat the call"
    return ToolServerError(message, tool_name=tool_name, code="file_changed")


def shown(path: str) -> str:
    """A path short enough for a message, and in characters that every stream can carry."""
    text = path if len(path) <= _SHOWN else f"{path[:_SHOWN]}..."
    return text.encode("utf-8", "backslashreplace").decode()
