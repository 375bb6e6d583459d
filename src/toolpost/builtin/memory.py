"""Tools for long-term memory: memory_list, memory_read, memory_write, memory_patch and memory_append."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.memory_files import MemoryEntry, MemoryFiles
from toolpost.builtin.memory_text import appended, patched, summary_of, with_summary
from toolpost.builtin.spelling import either, with_camel_case
from toolpost.builtin.workers import in_worker
from toolpost.catalog.function import FunctionTool, tool
from toolpost.contracts.context import ToolContext
from toolpost.contracts.spec import ToolCategory

if TYPE_CHECKING:
    from collections.abc import Callable

_TAGS = ("builtin", "memory")
_TIMEOUT_S = 30.0
MemoryPath = Annotated[
    str, Field(min_length=1, max_length=1000, description="A file below the memory folder, such as facts/user.md")
]


class MemoryFact(TypedDict):
    """A line of the index; `size` is in characters."""

    path: str
    summary: str
    size: int


class MemoryWritten(TypedDict):
    """A file that was written, and how many characters it has now."""

    path: str
    size: int


def memory_tools() -> list[FunctionTool]:
    """The tools of this module; the folder is the context's `memory_dir`."""
    made = (memory_list, memory_read, memory_write, memory_patch, memory_append)
    return [with_camel_case(one) for one in made]


@tool(side_effects="read", file=True, category=ToolCategory.MEMORY, tags=_TAGS, timeout_s=_TIMEOUT_S)
async def memory_list(ctx: ToolContext) -> list[MemoryFact]:
    """List the memory files with their summaries."""
    entries = MemoryFiles(ctx, tool_name="memory_list").entries
    return await in_worker(lambda check_cancelled: [_fact(one) for one in entries(check_cancelled)])


@tool(side_effects="read", file=True, category=ToolCategory.MEMORY, tags=_TAGS, timeout_s=_TIMEOUT_S)
async def memory_read(
    path: MemoryPath,
    ctx: ToolContext,
    *,
    version: Annotated[int, Field(ge=0, description="How many changes back; 0 is the file as it is now")] = 0,
) -> str:
    """Read a memory file."""
    files = MemoryFiles(ctx, tool_name="memory_read")
    return await in_worker(lambda _: files.read_version(path, version) if version else files.read(path))


@tool(side_effects="write", idempotent=True, file=True, category=ToolCategory.MEMORY, tags=_TAGS, timeout_s=_TIMEOUT_S)
async def memory_write(
    path: MemoryPath, content: Annotated[str, Field(description="The whole new content, in Markdown")], ctx: ToolContext
) -> MemoryWritten:
    """Write a memory file, in place of an old one if there is one."""
    return await _changed(ctx, "memory_write", path, lambda _: content)


@tool(side_effects="write", file=True, category=ToolCategory.MEMORY, tags=_TAGS, timeout_s=_TIMEOUT_S)
async def memory_patch(
    path: MemoryPath,
    old_str: Annotated[
        str, Field(min_length=1, validation_alias=either("old_str"), description="What to replace; it must occur once")
    ],
    new_str: Annotated[str, Field(validation_alias=either("new_str"), description="What to put in its place")],
    ctx: ToolContext,
) -> MemoryWritten:
    """Replace one text in a memory file."""
    return await _changed(ctx, "memory_patch", path, lambda text: patched(text, path, old_str, new_str))


@tool(side_effects="write", file=True, category=ToolCategory.MEMORY, tags=_TAGS, timeout_s=_TIMEOUT_S)
async def memory_append(
    path: MemoryPath,
    entry: Annotated[str, Field(min_length=1, description="What to add at the end")],
    ctx: ToolContext,
    *,
    summary: Annotated[str | None, Field(description="A new summary of the whole file, for the index")] = None,
) -> MemoryWritten:
    """Add an entry to a memory file, which is made if it is missing."""

    def new(text: str | None) -> str:
        longer = appended(text, entry)
        return longer if summary is None else with_summary(longer, summary)

    return await _changed(ctx, "memory_append", path, new)


def _fact(entry: MemoryEntry) -> MemoryFact:
    return {"path": entry.path, "summary": summary_of(entry.text), "size": len(entry.text)}


async def _changed(ctx: ToolContext, name: str, path: str, new: Callable[[str | None], str]) -> MemoryWritten:
    files = MemoryFiles(ctx, tool_name=name)
    return {"path": path, "size": await in_worker(partial(files.change, path, new))}
