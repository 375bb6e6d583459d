"""Tools that get at large results: read an artifact in parts, or find a text in it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from toolpost.catalog.function import FunctionTool, tool
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolClientError
from toolpost.contracts.principal import LOCAL_TENANT
from toolpost.contracts.spec import ToolCategory

if TYPE_CHECKING:
    from toolpost.contracts.storage import ArtifactRef, ArtifactStore

_CHUNK = 1 << 20
_EXCERPT = 80


def artifact_tools(artifacts: ArtifactStore) -> list[FunctionTool]:
    """The artifact tools over one store."""
    return [_reader(artifacts), _searcher(artifacts)]


def _reader(artifacts: ArtifactStore) -> FunctionTool:
    @tool(side_effects="read", category=ToolCategory.DATA, tags=["builtin", "artifact"], timeout_s=30)
    async def artifact_read(
        artifact_id: Annotated[str, Field(description="The artifact's id, as a completed call gave it")],
        ctx: ToolContext,
        offset: Annotated[int, Field(ge=0, description="Where to begin, in bytes")] = 0,
        limit: Annotated[int, Field(ge=4, le=20_000, description="The most bytes to read")] = 16_000,
    ) -> dict[str, Any]:
        """Read part of a result that was too large to hand on; `next_offset` is where to go on, null at the end."""
        ref = await _known(artifacts, artifact_id, ctx)
        data = await artifacts.read(artifact_id, tenant=ref.tenant, offset=offset, limit=limit)
        text = _as_text(data) if _is_text(ref.media_type) else None
        end = offset + (len(data) if text is None else len(text.encode("utf-8", "surrogatepass")))
        return {
            "artifact_id": artifact_id,
            "media_type": ref.media_type,
            "size": ref.size,
            "offset": offset,
            "next_offset": end if end < ref.size else None,
            "encoding": "base64" if text is None else "utf-8",
            "content": base64.b64encode(data).decode() if text is None else text,
        }

    return artifact_read


def _searcher(artifacts: ArtifactStore) -> FunctionTool:
    @tool(side_effects="read", category=ToolCategory.DATA, tags=["builtin", "artifact"], timeout_s=30)
    async def artifact_search(
        artifact_id: Annotated[str, Field(description="The artifact's id, as a completed call gave it")],
        query: Annotated[
            str,
            Field(min_length=1, max_length=1000, description="The text to find; the case of A to Z does not matter"),
        ],
        ctx: ToolContext,
        max_results: Annotated[int, Field(ge=1, le=100)] = 20,
    ) -> dict[str, Any]:
        """Find a text in a large result. Each match has its offset in bytes and some text around it."""
        ref = await _known(artifacts, artifact_id, ctx)
        needle, matches, begin = query.encode("utf-8", "surrogatepass").lower(), list[dict[str, Any]](), 0
        while begin < ref.size and len(matches) <= max_results:
            data = await artifacts.read(artifact_id, tenant=ref.tenant, offset=begin, limit=_CHUNK + len(needle) - 1)
            matches += _matches(data, needle, begin, room=max_results + 1 - len(matches))
            begin += _CHUNK
        return {
            "artifact_id": artifact_id,
            "matches": matches[:max_results],
            "truncated": len(matches) > max_results,
        }

    return artifact_search


async def _known(artifacts: ArtifactStore, artifact_id: str, ctx: ToolContext) -> ArtifactRef:
    """The artifact, if it belongs to the caller's tenant; a context without one is local, never everyone's."""
    ref = await artifacts.info(artifact_id, tenant=ctx.tenant_id or LOCAL_TENANT)
    if ref is None:
        msg = f"no artifact {artifact_id!r} for this user; a completed call names its artifacts"
        raise ToolClientError(msg, code="artifact_not_found")
    return ref


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or "json" in media_type or "xml" in media_type


def _as_text(data: bytes) -> str | None:
    """The longest whole text in the bytes; None when they do not begin with one."""
    for cut in range(4):  # a character may be cut in its middle at the end
        try:
            text = data[: len(data) - cut].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            continue
        return text if text or not data else None
    return None


def _matches(data: bytes, needle: bytes, begin: int, *, room: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    lowered, at = data.lower(), 0
    while len(found) < room and (at := lowered.find(needle, at)) >= 0:
        around = data[max(0, at - _EXCERPT) : at + len(needle) + _EXCERPT]
        found.append({"offset": begin + at, "excerpt": around.decode("utf-8", "replace")})
        at += len(needle)
    return found
