"""Memory as Markdown files below one folder: replaced whole, one writer at a time, with the versions before kept.

The versions lie in `.history`, which git is told to leave alone; what git sees are the files as they are now.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from toolpost.builtin.atomic_files import check_writable, folder_lock, remove_leftovers, replace_file
from toolpost.builtin.file_access import FileAccess, display_path
from toolpost.contracts.errors import ConfigError, ToolClientError, ToolError, ToolPermissionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolpost.contracts.context import ToolContext

HISTORY = ".history"
SUFFIX = ".md"
MOST_VERSIONS = 100
_LARGEST = 10 << 20


def resolve_memory_path(relative_path: str, memory_dir: str) -> str:
    """Where a path of a memory file leads; it must not lead out of the folder, by `..` or by a link."""
    root = os.path.realpath(memory_dir)
    try:
        resolved = os.path.realpath(os.path.join(root, relative_path))  # noqa: PTH118 - an absolute one must show
    except (ValueError, OSError):  # no name, or a link that is being replaced
        resolved = ""
    if "\0" in relative_path or (resolved != root and not resolved.startswith(root.rstrip(os.sep) + os.sep)):
        raise ToolPermissionError(f'Path "{display_path(relative_path)}" escapes memory directory', code="path_refused")
    return resolved


class MemoryEntry(NamedTuple):
    """A file as the index knows it; the path is written with `/` on every system."""

    path: str
    text: str


class MemoryFiles:
    """The memory of one context, for one tool."""

    def __init__(self, ctx: ToolContext, *, tool_name: str) -> None:
        if not ctx.memory_dir:
            message = "there is no folder for memory; set `data_dir` in the configuration, or memory_dir in the context"
            raise ConfigError(message, tool_name=tool_name, code="memory_dir_missing")
        self._root = os.path.realpath(ctx.memory_dir)
        self._access = FileAccess(tool_name=tool_name, allowed_paths=(self._root,))

    def entries(self, check_cancelled: Callable[[], None]) -> Iterator[MemoryEntry]:
        """Every Markdown file, by its path; those whose names begin with a dot are not memory."""
        for path in self._paths(check_cancelled):
            with suppress(ToolError):  # gone since, or a link that leads outside
                yield MemoryEntry(path, self._text(path, errors="backslashreplace"))

    def read(self, path: str) -> str:
        """A file's text; bytes that are no UTF-8 show as such."""
        self._check(path)
        return self._text(path, errors="backslashreplace")

    def read_version(self, path: str, back: int) -> str:
        """The text that a file had so many changes ago."""
        kept = self._versions(self._check(path))
        if back > len(kept):
            message = f"{display_path(path)!r} has {len(kept)} earlier versions; ask for one of them"
            raise self._access.refusal(message, "version_not_found")
        return self._text(str(kept[back - 1]), errors="backslashreplace")

    def change(self, path: str, new: Callable[[str | None], str], check_cancelled: Callable[[], None]) -> int:
        """Replace a file by what `new` makes of its text (None: there is none); how many characters it has then.

        The version before is kept first, so that at every moment the old one, or both, are on the disk.
        """
        resolved = self._check(path)
        Path(self._root).mkdir(parents=True, exist_ok=True)
        with folder_lock(self._access, self._root, check_cancelled), self._access.place(resolved, make=True) as place:
            old = check_writable(self._access, place)
            remove_leftovers(place)
            before = None if old is None else self._text(path)
            after = new(before)
            data = self._encoded(after)
            if before is not None and after != before:
                self._keep(resolved, before)
            if after != before:
                replace_file(place, [data], old=old)
        return len(after)

    def _paths(self, check_cancelled: Callable[[], None]) -> Iterator[str]:
        for folder, folders, names in os.walk(self._root):
            check_cancelled()
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                if name.endswith(SUFFIX) and not name.startswith("."):
                    yield (Path(folder) / name).relative_to(self._root).as_posix()

    def _check(self, path: str) -> str:
        """Where a file is; what is no Markdown, or hidden as git's own files are, is no memory."""
        resolved = resolve_memory_path(path, self._root)
        parts = Path(os.path.relpath(resolved, self._root)).parts
        if not resolved.endswith(SUFFIX) or any(part.startswith(".") for part in parts):
            message = f"{display_path(path)!r} is no memory file; name one that ends in .md, such as facts/user.md"
            raise self._access.refusal(message, "path_refused")
        return resolved

    def _text(self, path: str, *, errors: str = "strict") -> str:
        try:
            with self._access.open_file(resolve_memory_path(path, self._root)) as opened:
                if opened.status.st_size > _LARGEST:
                    raise self._access.refusal(f"{display_path(path)!r} has more than 10 MB", "file_too_large")
                with os.fdopen(opened.fd, "rb", closefd=False) as file:
                    return file.read().decode("utf-8", errors)
        except UnicodeDecodeError:
            message = f"{display_path(path)!r} is no UTF-8 text and is left as it is; write it anew under another name"
            raise self._access.refusal(message, "encoding_wrong") from None
        except ToolClientError as failed:
            if failed.error_code != "file_not_found":
                raise
            message = f"Memory file not found: {display_path(path)!r}; memory_list shows what there is"
            raise self._access.refusal(message, failed.error_code) from None

    def _encoded(self, text: str) -> bytes:
        try:
            data = text.encode()
        except UnicodeEncodeError:
            message = "the text holds half of a surrogate pair, which UTF-8 cannot carry; correct the text"
            raise self._access.refusal(message, "encoding_wrong") from None
        if len(data) > _LARGEST:
            message = "a memory file may have 10 MB at most; keep less, or begin another file"
            raise self._access.refusal(message, "file_too_large")
        return data

    def _keep(self, resolved: str, text: str) -> None:
        """Keep a version; the oldest go when there are too many."""
        with self._access.place(f"{self._root}/{HISTORY}/.gitignore", make=True) as place:
            if place.status_or_none() is None:
                replace_file(place, [b"*\n"], old=None)
        with self._access.place(str(self._shelf(resolved) / f"{time.time_ns():020d}{SUFFIX}"), make=True) as place:
            remove_leftovers(place)
            replace_file(place, [text.encode()], old=None)
        for old in self._versions(resolved)[MOST_VERSIONS:]:
            old.unlink(missing_ok=True)

    def _versions(self, resolved: str) -> list[Path]:
        """The kept versions of a file, the newest first."""
        return sorted(self._shelf(resolved).glob(f"[0-9]*{SUFFIX}"), reverse=True)

    def _shelf(self, resolved: str) -> Path:
        return Path(self._root) / HISTORY / os.path.relpath(resolved, self._root)
