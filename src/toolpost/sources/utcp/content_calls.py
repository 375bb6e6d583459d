"""Calls of text and file templates: the content is the answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, cast

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolClientError
from toolpost.sources.utcp.documents import MAX_BYTES
from toolpost.sources.utcp.message_calls import fitted

if TYPE_CHECKING:
    from toolpost.sources.utcp.templates import FileTemplate, TextTemplate
    from toolpost.sources.utcp.wires import Asked, Prepared, Wires


async def call_text(prepared: Prepared, _: Asked, __: Wires) -> ToolOutput:
    """The text of the template."""
    return ToolOutput(fitted(cast("TextTemplate", prepared.template).content, prepared))


async def call_file(prepared: Prepared, _: Asked, wires: Wires) -> ToolOutput:
    """The content of a file; a relative path is below the manual's own folder."""
    path = located(cast("FileTemplate", prepared.template).file_path, wires.folder)
    return ToolOutput(fitted(await read_text(path), prepared))


def located(written: str, folder: Path | None) -> Path:
    """Where a path leads that stands in a document of this folder."""
    path = Path(written).expanduser()
    return path if path.is_absolute() or folder is None else folder / path


async def read_text(path: Path) -> str:
    """The text of a file of bounded size."""
    try:
        raw = await asyncio.to_thread(_read, path)
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise ToolClientError(f"{str(path)!r} cannot be read: {error.strerror}; check its path", cause=error) from error
    except UnicodeDecodeError as error:
        raise ToolClientError(f"{str(path)!r} is not UTF-8 text", cause=error) from error


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise OSError(None, f"it is larger than {MAX_BYTES // 2**20} MiB")
    return raw
