"""The tools artifact_read and artifact_search, for results that are too large for a prompt."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from toolpost.builtin.history import tenant_of, user_of
from toolpost.catalog.function import FunctionTool, tool
from toolpost.contracts.errors import ToolClientError
from toolpost.contracts.spec import ToolCategory
from toolpost.policy.untrusted import mark_untrusted

if TYPE_CHECKING:
    from toolpost.contracts.calls import ToolOutput
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.storage import ArtifactRef, ArtifactStore

_CHUNK = 1 << 20
_EXCERPT = 80
# Artifacts mostly contain results of sources, so models get them as untrusted content.
_artifact_tool = tool(
    side_effects="read",
    category=ToolCategory.DATA,
    tags=["builtin", "artifact"],
    timeout_s=30,
    output_schema={"additionalProperties": True, "type": "object"},
)


def artifact_tools(artifacts: ArtifactStore) -> list[FunctionTool]:
    """Return the artifact tools over one store."""

    @_artifact_tool
    async def artifact_read(
        artifact_id: Annotated[str, Field(description="The ID of the artifact, from the outcome of a completed call")],
        ctx: ToolContext,
        offset: Annotated[int, Field(ge=0, description="The first byte to read, from 0")] = 0,
        limit: Annotated[int, Field(ge=4, le=20_000, description="Maximum number of bytes")] = 16_000,
    ) -> ToolOutput:
        """Read part of a large result that was stored as an artifact; `next_offset` starts the next part."""
        ref = await _find_artifact(artifacts, artifact_id, ctx)
        data = await artifacts.read(artifact_id, tenant=ref.tenant, offset=offset, limit=limit)
        text = _decode_whole(data) if _is_text(ref.media_type) else None
        end = offset + (len(data) if text is None else len(text.encode("utf-8", "surrogatepass")))
        content = {
            "artifact_id": artifact_id,
            "media_type": ref.media_type,
            "size": ref.size,
            "offset": offset,
            "next_offset": end if end < ref.size else None,
            "encoding": "base64" if text is None else "utf-8",
            "content": base64.b64encode(data).decode() if text is None else text,
        }
        return mark_untrusted(content, origin=f"artifact {artifact_id}")

    @_artifact_tool
    async def artifact_search(
        artifact_id: Annotated[str, Field(description="The ID of the artifact, from the outcome of a completed call")],
        query: Annotated[
            str,
            Field(min_length=1, max_length=1000, description="The text to find, regardless of the case of A to Z"),
        ],
        ctx: ToolContext,
        max_results: Annotated[int, Field(ge=1, le=100)] = 20,
    ) -> ToolOutput:
        """Find a text in a result that was stored as an artifact. Each match has its byte offset and an excerpt."""
        ref = await _find_artifact(artifacts, artifact_id, ctx)
        needle, matches, begin = query.encode("utf-8", "surrogatepass").lower(), list[dict[str, Any]](), 0
        while begin < ref.size and len(matches) <= max_results:
            data = await artifacts.read(artifact_id, tenant=ref.tenant, offset=begin, limit=_CHUNK + len(needle) - 1)
            matches += _matches(data, needle, begin, room=max_results + 1 - len(matches))
            begin += _CHUNK
        found = matches[:max_results]
        content = {"artifact_id": artifact_id, "matches": found, "truncated": len(matches) > max_results}
        return mark_untrusted(content, origin=f"artifact {artifact_id}")

    return [artifact_read, artifact_search]


async def _find_artifact(artifacts: ArtifactStore, artifact_id: str, ctx: ToolContext) -> ArtifactRef:
    """Return an artifact of the caller's user."""
    ref = await artifacts.info(artifact_id, tenant=tenant_of(ctx), user=user_of(ctx))
    if ref is None:
        msg = f"no artifact {artifact_id!r} for this user; a completed call names its artifacts"
        raise ToolClientError(msg, code="artifact_not_found")
    return ref


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or "json" in media_type or "xml" in media_type


def _decode_whole(data: bytes) -> str | None:
    """Decode the longest prefix that is complete UTF-8; None if there is none."""
    for cut in range(4):  # the last character may be incomplete
        try:
            text = data[: len(data) - cut].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            continue
        return text if text or not data else None
    return None


def _matches(data: bytes, needle: bytes, begin: int, *, room: int) -> list[dict[str, Any]]:
    matches: list[dict[str, Any]] = []
    lowered, at = data.lower(), 0
    while len(matches) < room and (at := lowered.find(needle, at)) >= 0:
        around = data[max(0, at - _EXCERPT) : at + len(needle) + _EXCERPT]
        matches.append({"offset": begin + at, "excerpt": around.decode("utf-8", "replace")})
        at += len(needle)
    return matches
