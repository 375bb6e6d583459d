"""The tool session_archive_read, for archived sessions of a main agent."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from toolpost.builtin.file_access import FileAccess, display_path
from toolpost.catalog.function import FunctionTool, tool
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts.errors import ConfigError, ToolClientError, ToolPermissionError
from toolpost.contracts.spec import ToolCategory
from toolpost.stores.agent_records.sessions import CURRENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.context import ToolContext

_LARGEST_ARCHIVE = 10 << 20
_NAME = "session_archive_read"


def session_tools() -> list[FunctionTool]:
    """Return session_archive_read; the folder is the context's `session_dir`."""
    return [session_archive_read]


@tool(side_effects="read", file=True, category=ToolCategory.SYSTEM, tags=["builtin", "session"], timeout_s=30)
async def session_archive_read(
    file: Annotated[
        str, Field(min_length=1, max_length=1000, description="The name of an archive, such as 20260225T143000.jsonl")
    ],
    ctx: ToolContext,
) -> str:
    """Read an archived session as JSON lines."""
    if not ctx.session_dir:
        message = "no folder for sessions; set `data_dir` in the configuration, or session_dir in the context"
        raise ConfigError(message, tool_name=_NAME, code="session_dir_missing")
    return await run_cancellable(partial(_read_archive, ctx.session_dir, file))


def _read_archive(session_dir: str, file: str, _: Callable[[], None]) -> str:
    folder = os.path.realpath(session_dir)
    path = _resolve_archive(folder, file)
    if os.path.basename(path) == CURRENT:  # noqa: PTH119 - a path as a string
        message = f"Cannot read {CURRENT} — it is the active session, not an archive"
        raise ToolClientError(message, tool_name=_NAME, code="session_active")
    access = FileAccess(tool_name=_NAME, allowed_paths=(folder,))
    try:
        with access.open_file(path) as opened:
            if opened.status.st_size > _LARGEST_ARCHIVE:
                message = f"{display_path(file)!r} has more than 10 MB; read it with read_file, in parts"
                raise access.refusal(message, "file_too_large")
            return opened.read().decode("utf-8", "backslashreplace")
    except ToolClientError as failed:
        if failed.error_code != "file_not_found":
            raise
        message = (
            f"Session archive not found: {display_path(file)!r}; the first line of a session names the previous one"
        )
        raise access.refusal(message, failed.error_code) from None


def _resolve_archive(folder: str, file: str) -> str:
    try:
        path = os.path.realpath(os.path.join(folder, file))  # noqa: PTH118 - an absolute path must be detected
    except ValueError:
        path = ""
    if "\0" in file or not path.startswith(folder.rstrip(os.sep) + os.sep):
        message = f'Path "{display_path(file)}" escapes session directory'
        raise ToolPermissionError(message, tool_name=_NAME, code="path_refused")
    return path
