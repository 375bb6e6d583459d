"""Tools and outcomes in the format of MCP: definitions, content blocks, structured content, and artifact links."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY

from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolError, ToolTimeoutError
from toolpost.contracts.outcomes import OWN_META, SERVER_META, Completed, Failed
from toolpost.contracts.storage import ARTIFACTS
from toolpost.gateway.mcp.definitions import WRAPPED, is_wrapped
from toolpost.policy.untrusted import WARNING, tool_results
from toolpost.processes.json_documents import measure
from toolpost.runtime.model_messages import model_text
from toolpost.schema.json_size import MAX_DIRECT_VALUES
from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from toolpost.contracts.principal import Principal
    from toolpost.contracts.spec import ToolSpec
    from toolpost.contracts.storage import ArtifactRef, ArtifactStore

_NO_RESOURCE = -32002  # of protocol 2025-11-25 and earlier
_MOST_CAUSES = 20  # a tool may raise an error that is its own cause
_INLINE_FILE = 1_000_000  # bytes of an image or sound that is sent inline
_MEDIA = ("image", "audio")


async def completed_result(
    outcome: Completed, spec: ToolSpec, artifacts: ArtifactStore, *, owner: Principal, links_large: bool = True
) -> dict[str, Any]:
    """Return the result of a completed call; small images and sounds are sent inline, other files as links.

    If the tool has an output schema, clients reject a result without structured content. For a large result it is a
    reference, or without `links_large` the full result.
    """
    content = [block async for block in _blocks(outcome, artifacts, owner)]
    if spec.third_party and not spec.origin:
        content = [_framed(block, spec.name) for block in content]
    result: dict[str, Any] = {"content": content, "isError": False}
    structured, is_large = outcome.content, _is_reference(outcome)
    if spec.output_schema is not None:
        if is_large and not links_large:
            structured, is_large = await whole_content(structured, artifacts, owner), False
        result["structuredContent"] = {WRAPPED: structured} if is_wrapped(spec) and not is_large else structured
    elif is_object(structured) and (not outcome.artifacts or (is_large and links_large and "preview" in structured)):
        result["structuredContent"] = structured
    meta = outcome.meta
    own = {f"{OWN_META}{key}": meta[key] for key in ("trust", "origin", "output_issues") if key in meta}
    return {**result, "_meta": {**meta.get(SERVER_META, {}), f"{OWN_META}run_id": outcome.run_id, **own}}


def _framed(block: dict[str, Any], origin: str) -> dict[str, Any]:
    """Return a block with its text, if any, labeled as third-party content of a built-in tool."""
    text: Any = block.get("text")
    if block.get("type") != "text" or not isinstance(text, str) or text.startswith(WARNING):
        return block
    return {**block, "text": tool_results(text, origin)}


def _is_reference(outcome: Completed) -> bool:
    """Return whether the content of a result is a reference to its artifact."""
    content, artifacts = outcome.content, outcome.artifacts
    return bool(artifacts) and is_object(content) and content.get("uri") == f"{ARTIFACTS}{artifacts[0]}"


async def whole_content(content: Any, artifacts: ArtifactStore, owner: Principal) -> Any:
    """Return the full result if `content` is the preview of an artifact."""
    ref = await _find_artifact(content, artifacts, owner)
    if ref is None:
        return content
    data = await artifacts.read(ref.id, tenant=ref.tenant)
    if ref.media_type != "application/json":
        return data.decode("utf-8", "replace")
    try:
        await measure(data, MAX_DIRECT_VALUES)
    except ToolClientError:  # decoding it would block the event loop
        return content
    return json.loads(data)


async def _find_artifact(part: Any, artifacts: ArtifactStore, owner: Principal) -> ArtifactRef | None:
    """Return the artifact that a part of a result refers to; None if the tool uses the key for something else."""
    artifact_id: Any = part.get("artifact_id") if is_object(part) else None
    if not isinstance(artifact_id, str):
        return None
    return await artifacts.info(artifact_id, tenant=owner.tenant, user=owner.user)


async def _blocks(outcome: Completed, artifacts: ArtifactStore, owner: Principal) -> AsyncGenerator[dict[str, Any]]:
    content: Any = outcome.content
    parts: list[Any] = content if is_array(content) and all(map(_is_part, content)) else []
    if parts:
        for part in parts:
            ref = await _find_artifact(part, artifacts, owner)
            yield _plain_block(part) if ref is None else await _file_block(part, ref, artifacts)
        return
    if is_object(content) and (ref := await _find_artifact(content, artifacts, owner)) is not None:
        yield await _file_block(content, ref, artifacts)
        if "preview" in content:
            yield {"type": "text", "text": _preview_text(content)}
        return
    yield {"type": "text", "text": _text(outcome)}


def _preview_text(content: Mapping[str, Any]) -> str:
    """Return the preview of a large result with its artifact, because some clients show only text to their model."""
    rest = f"{content.get('size')} bytes in all, stored as {content['artifact_id']}"
    return f"{content['preview']}\n[{rest}{'; ' if content.get('next') else ''}{content.get('next', '')}]"


def _is_part(part: Any) -> bool:
    return is_object(part) and part.get("type") in ("text", "image", "audio", "resource", "resource_link")


def _plain_block(part: dict[str, Any]) -> dict[str, Any]:
    if "artifact_id" in part:  # the file was deleted, so a block of its type is impossible
        return {"type": "text", "text": json.dumps(part, ensure_ascii=False, default=str)}
    if part["type"] != "resource":
        return part
    return {"type": "resource", "resource": {key: value for key, value in part.items() if key != "type"}}


async def _file_block(part: dict[str, Any], ref: ArtifactRef, artifacts: ArtifactStore) -> dict[str, Any]:
    """Return a file as a content block: inline if it is small enough, else as a link."""
    media_type, uri = ref.media_type, part.get("uri")
    kind = str(part.get("type") or media_type.split("/", 1)[0])
    if ref.size <= _INLINE_FILE and (kind in _MEDIA or (kind == "resource" and uri)):
        data = base64.b64encode(await artifacts.read(ref.id, tenant=ref.tenant)).decode()
        if kind in _MEDIA:
            return {"type": kind, "data": data, "mimeType": media_type}
        return {"type": "resource", "resource": {"uri": uri, "mimeType": media_type, "blob": data}}
    return {"type": "resource_link", "uri": ref.uri, "name": ref.id, "mimeType": media_type, "size": ref.size}


def _text(outcome: Completed) -> str:
    if outcome.text is not None:
        return outcome.text
    content = outcome.content
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)


def failed_result(outcome: Failed) -> dict[str, Any]:
    """Return the result of a failed call: an error that a model can read and act on."""
    error = outcome.error
    meta = {
        **error.server_meta,
        f"{OWN_META}run_id": outcome.run_id,
        f"{OWN_META}error_code": error.error_code,
        f"{OWN_META}retryable": error.is_retryable,
    }
    return {"content": [{"type": "text", "text": model_text(outcome)}], "isError": True, "_meta": meta}


def protocol_error(error: ToolError) -> MCPError | None:
    """Return the protocol error of the upstream server, or None if the error is of another kind."""
    cause: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if cause is None or isinstance(cause, MCPError):
            break
        cause = cause.__cause__
    if not isinstance(cause, MCPError) or isinstance(error, ToolConnectionError | ToolTimeoutError):
        return None
    data: Any = cause.error.data
    return MCPError(code=cause.error.code, message=cause.error.message, data=data if data != {} else None)


def refuse_missing_capability(error: ToolError) -> None:
    """Raise the upstream server's error about a missing client capability, which only the client can fix."""
    refused = protocol_error(error)
    if refused is not None and refused.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY:
        raise refused


def is_refusal(error: ToolError) -> bool:
    """Return whether the upstream server reports that the item does not exist."""
    refused = protocol_error(error)
    return refused is not None and refused.error.code in (INVALID_PARAMS, _NO_RESOURCE)


def resource_contents(uri: str, media_type: str, data: bytes) -> dict[str, Any]:
    """Return a file as the contents of a resource: as text if possible, else in base64."""
    if media_type.startswith("text/") or media_type in ("application/json", "application/xml"):
        try:
            return {"uri": uri, "mimeType": media_type, "text": data.decode()}
        except UnicodeDecodeError:
            pass
    return {"uri": uri, "mimeType": media_type, "blob": base64.b64encode(data).decode()}
