"""Tools for long-term memory: Markdown files in a folder, replaced as a whole, with earlier versions kept.

Each user has a memory. `shared/` is the memory of the tenant: all its users read it, and a change needs approval.
Versions are in `.history`, which git ignores.
"""

from __future__ import annotations

import os
import posixpath
import re
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.builtin.file_access import FileAccess, display_path
from toolpost.builtin.file_replacement import check_writable, folder_lock, remove_leftovers, replace_file
from toolpost.builtin.file_writing import occurrences
from toolpost.catalog.function import FunctionTool, tool
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts.errors import ConfigError, ToolClientError, ToolError, ToolPermissionError
from toolpost.contracts.questions import CallPreview
from toolpost.contracts.spec import ToolCategory
from toolpost.stores.durable_files import make_private_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolpost.contracts.context import ToolContext

_TAGS = ("builtin", "memory")
_TIMEOUT_S = 30.0
MemoryPath = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1000,
        description="A file below the memory folder, such as facts/user.md; shared/ belongs to the whole tenant",
    ),
]
SHARED = "shared"
HISTORY = ".history"
SUFFIX = ".md"
MOST_VERSIONS = 100
_LARGEST = 10 << 20
_SUMMARY = re.compile(r"^>[ \t]*Summary:(.*)$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}[ \t].*$", re.MULTILINE)


class MemoryListEntry(TypedDict):
    """An entry of the index; `size` is in characters."""

    path: str
    summary: str
    size: int


class MemoryWriteResult(TypedDict):
    """The written file and its size in characters."""

    path: str
    size: int


def memory_tools() -> list[FunctionTool]:
    """Return the tools of this module; the folder is the context's `memory_dir`."""
    tools = (memory_list, memory_read, memory_write, memory_patch, memory_append)
    return [with_camel_case(one) for one in tools]


@tool(side_effects="read", file=True, category=ToolCategory.MEMORY, tags=_TAGS, timeout_s=_TIMEOUT_S)
async def memory_list(ctx: ToolContext) -> list[MemoryListEntry]:
    """List the memory files with their summaries."""
    own, shared = _own_memory(ctx, "memory_list"), _shared_memory(ctx, "memory_list")
    memories = [own] if shared is None else [own, shared]

    def entries(check_cancelled: Callable[[], None]) -> list[MemoryListEntry]:
        return [_fact(one) for files in memories for one in files.entries(check_cancelled)]

    return await run_cancellable(entries)


@tool(side_effects="read", file=True, category=ToolCategory.MEMORY, tags=_TAGS, timeout_s=_TIMEOUT_S)
async def memory_read(
    path: MemoryPath,
    ctx: ToolContext,
    *,
    version: Annotated[int, Field(ge=0, description="Number of changes to go back; 0 is the current file")] = 0,
) -> str:
    """Read a memory file."""
    files, inside = _find_memory(ctx, "memory_read", path)
    return await run_cancellable(lambda _: files.read_version(inside, version) if version else files.read(inside))


async def _preview_change(params: dict[str, Any], ctx: ToolContext) -> CallPreview:
    """Require approval for a change of the tenant's shared memory."""
    if _shared_path(ctx, params["path"]) is None:
        return CallPreview(destructive=False)
    return CallPreview(destructive=True, reason=f"{display_path(params['path'])!r} is shared by the whole tenant")


def _writes(*, idempotent: bool = False) -> Callable[[Callable[..., Any]], FunctionTool]:
    return tool(
        side_effects="write",
        destructive=True,
        idempotent=idempotent,
        preview=_preview_change,
        file=True,
        category=ToolCategory.MEMORY,
        tags=_TAGS,
        timeout_s=_TIMEOUT_S,
    )


@_writes(idempotent=True)
async def memory_write(
    path: MemoryPath,
    content: Annotated[str, Field(description="The complete new content, in Markdown")],
    ctx: ToolContext,
) -> MemoryWriteResult:
    """Write a memory file, replacing an existing one."""
    return await _change(ctx, "memory_write", path, lambda _: content)


@_writes()
async def memory_patch(
    path: MemoryPath,
    old_str: Annotated[
        str,
        Field(
            min_length=1,
            validation_alias=either("old_str"),
            description="The text to replace; it must be unique",
        ),
    ],
    new_str: Annotated[str, Field(validation_alias=either("new_str"), description="The replacement")],
    ctx: ToolContext,
) -> MemoryWriteResult:
    """Replace a text in a memory file."""
    return await _change(ctx, "memory_patch", path, lambda text: replace_once(text, path, old_str, new_str))


@_writes()
async def memory_append(
    path: MemoryPath,
    entry: Annotated[str, Field(min_length=1, description="The text to append")],
    ctx: ToolContext,
    *,
    summary: Annotated[str | None, Field(description="A new summary of the file, for the index")] = None,
) -> MemoryWriteResult:
    """Append an entry to a memory file, which is created if it is missing."""

    def new(text: str | None) -> str:
        longer = append_entry(text, entry)
        return longer if summary is None else set_summary(longer, summary)

    return await _change(ctx, "memory_append", path, new)


def _fact(entry: MemoryEntry) -> MemoryListEntry:
    return {"path": entry.path, "summary": find_summary(entry.text), "size": len(entry.text)}


async def _change(ctx: ToolContext, name: str, path: str, new: Callable[[str | None], str]) -> MemoryWriteResult:
    files, inside = _find_memory(ctx, name, path)
    return {"path": path, "size": await run_cancellable(partial(files.change, inside, new))}


def _find_memory(ctx: ToolContext, tool_name: str, path: str) -> tuple[MemoryFiles, str]:
    """Return the memory that contains a path, and the path inside it."""
    inside = _shared_path(ctx, path)
    shared = None if inside is None else _shared_memory(ctx, tool_name)
    return (_own_memory(ctx, tool_name), path) if inside is None or shared is None else (shared, inside)


def _shared_path(ctx: ToolContext, path: str) -> str | None:
    """Return the path within the tenant's shared memory, or None for a path in the user's memory."""
    first, _, rest = posixpath.normpath(path).partition("/")
    return rest if first == SHARED and rest and ctx.shared_memory_dir else None


def _own_memory(ctx: ToolContext, tool_name: str) -> MemoryFiles:
    if not ctx.memory_dir:
        message = "no folder for memory; set `data_dir` in the configuration, or memory_dir in the context"
        raise ConfigError(message, tool_name=tool_name, code="memory_dir_missing")
    return MemoryFiles(ctx.memory_dir, tool_name=tool_name)


def _shared_memory(ctx: ToolContext, tool_name: str) -> MemoryFiles | None:
    folder = ctx.shared_memory_dir
    return None if not folder else MemoryFiles(folder, tool_name=tool_name, prefix=f"{SHARED}/")


def resolve_memory_path(relative_path: str, memory_dir: str) -> str:
    """Resolve the path of a memory file; reject one that leaves the folder by `..` or by a link."""
    root = os.path.realpath(memory_dir)
    try:
        resolved = os.path.realpath(os.path.join(root, relative_path))  # noqa: PTH118 - an absolute path must be detected
    except (ValueError, OSError):  # an invalid name, or a link that is being replaced
        resolved = ""
    if "\0" in relative_path or (resolved != root and not resolved.startswith(root.rstrip(os.sep) + os.sep)):
        raise ToolPermissionError(f'Path "{display_path(relative_path)}" escapes memory directory', code="path_refused")
    return resolved


class MemoryEntry(NamedTuple):
    """A file in the index; the path uses `/` on every system."""

    path: str
    text: str


class MemoryFiles:
    """The memory files in a folder, for one tool; `prefix` is shown before their paths."""

    def __init__(self, folder: str, *, tool_name: str, prefix: str = "") -> None:
        self._root = os.path.realpath(folder)
        self._prefix = prefix
        self._access = FileAccess(tool_name=tool_name, allowed_paths=(self._root,))

    def entries(self, check_cancelled: Callable[[], None]) -> Iterator[MemoryEntry]:
        """Yield every Markdown file, sorted by path, except names that begin with a dot."""
        for path in self._paths(check_cancelled):
            with suppress(ToolError):  # deleted concurrently, or a link that leads outside
                yield MemoryEntry(f"{self._prefix}{path}", self._text(path, errors="backslashreplace"))

    def read(self, path: str) -> str:
        """Read a file; bytes that are not UTF-8 become escapes."""
        self._check(path)
        return self._text(path, errors="backslashreplace")

    def read_version(self, path: str, back: int) -> str:
        """Read the text of a file before its last `back` changes."""
        versions = self._versions(self._check(path))
        if back > len(versions):
            message = f"{display_path(path)!r} has {len(versions)} earlier versions; request one of them"
            raise self._access.refusal(message, "version_not_found")
        return self._text(str(versions[back - 1]), errors="backslashreplace")

    def change(self, path: str, new: Callable[[str | None], str], check_cancelled: Callable[[], None]) -> int:
        """Replace a file by `new` of its text (None for a new file); return its number of characters.

        The previous version is stored first: the old text is then always on disk.
        """
        resolved = self._check(path)
        make_private_folder(Path(self._root))
        with folder_lock(self._access, self._root, check_cancelled), self._access.place(resolved, make=True) as place:
            old = check_writable(self._access, place)
            remove_leftovers(place)
            before = None if old is None else self._text(path)
            after = new(before)
            data = self._encode(after)
            if before is not None and after != before:
                self._store_version(resolved, before)
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
        """Resolve a path; reject anything that is not a Markdown file, and hidden files such as git's."""
        resolved = resolve_memory_path(path, self._root)
        parts = Path(os.path.relpath(resolved, self._root)).parts
        if not resolved.endswith(SUFFIX) or any(part.startswith(".") for part in parts):
            message = f"{display_path(path)!r} is not a memory file; name one that ends in .md, such as facts/user.md"
            raise self._access.refusal(message, "path_refused")
        return resolved

    def _text(self, path: str, *, errors: str = "strict") -> str:
        try:
            with self._access.open_file(resolve_memory_path(path, self._root)) as opened:
                if opened.status.st_size > _LARGEST:
                    raise self._access.refusal(f"{display_path(path)!r} has more than 10 MB", "file_too_large")
                return opened.read().decode("utf-8", errors)
        except UnicodeDecodeError:
            message = (
                f"{display_path(path)!r} is not UTF-8 text and was not changed; write a new file under another name"
            )
            raise self._access.refusal(message, "encoding_wrong") from None
        except ToolClientError as failed:
            if failed.error_code != "file_not_found":
                raise
            message = f"Memory file not found: {display_path(self._prefix + path)!r}; memory_list shows all"
            raise self._access.refusal(message, failed.error_code) from None

    def _encode(self, text: str) -> bytes:
        try:
            data = text.encode()
        except UnicodeEncodeError:
            message = "the text contains half of a surrogate pair, which UTF-8 cannot encode; correct the text"
            raise self._access.refusal(message, "encoding_wrong") from None
        if len(data) > _LARGEST:
            message = "a memory file may have at most 10 MB; shorten it, or start another file"
            raise self._access.refusal(message, "file_too_large")
        return data

    def _store_version(self, resolved: str, text: str) -> None:
        """Store a version; delete the oldest if there are too many."""
        with self._access.place(f"{self._root}/{HISTORY}/.gitignore", make=True) as place:
            if place.status_or_none() is None:
                replace_file(place, [b"*\n"], old=None)
        with self._access.place(
            str(self._versions_folder(resolved) / f"{time.time_ns():020d}{SUFFIX}"), make=True
        ) as place:
            remove_leftovers(place)
            replace_file(place, [text.encode()], old=None)
        for old in self._versions(resolved)[MOST_VERSIONS:]:
            old.unlink(missing_ok=True)

    def _versions(self, resolved: str) -> list[Path]:
        """Return the stored versions of a file, newest first."""
        return sorted(self._versions_folder(resolved).glob(f"[0-9]*{SUFFIX}"), reverse=True)

    def _versions_folder(self, resolved: str) -> Path:
        return Path(self._root) / HISTORY / os.path.relpath(resolved, self._root)


def find_summary(text: str) -> str:
    """Return the first `> Summary:` line of a file, or an empty string."""
    match = _SUMMARY.search(text)
    return match[1].strip() if match else ""


def set_summary(text: str, summary: str) -> str:
    """Set the summary of a text: replace the existing one, else insert it under the first heading, else at the top."""
    line = f"> Summary: {' '.join(summary.split())}"
    match = _SUMMARY.search(text)
    if match:
        return f"{text[: match.start()]}{line}{text[match.end() :]}"
    heading = _HEADING.search(text)
    if heading:
        return f"{text[: heading.end()]}\n\n{line}{text[heading.end() :]}"
    return f"{line}\n\n{text}"


def append_entry(text: str | None, entry: str) -> str:
    """Append an entry on a separate line."""
    if not text:
        return entry
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}{entry}"


def replace_once(text: str | None, path: str, old: str, new: str) -> str:
    """Replace the only occurrence of a text; raise a ToolClientError if there is not exactly one."""
    if text is None:
        raise ToolClientError(f"Memory file not found: {path!r}; memory_list shows all", code="file_not_found")
    count = occurrences(text, old)
    if count == 1:
        return text.replace(old, new)
    if not count:
        message = f"String not found in {path}; memory_read shows its current content"
        raise ToolClientError(message, code="string_not_found")
    message = f"String appears multiple times in {path} — provide more context to make it unique"
    raise ToolClientError(message, code="string_ambiguous")
