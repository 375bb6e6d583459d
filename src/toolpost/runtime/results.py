"""What becomes of a tool's output: checked, measured, and kept as an artifact when it is large or binary."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.errors import ToolOutputError
from toolpost.contracts.events import JsonText
from toolpost.contracts.storage import ArtifactRef

if TYPE_CHECKING:
    from toolpost.contracts.calls import ToolOutput
    from toolpost.contracts.events import CallRef
    from toolpost.contracts.storage import ArtifactStore
    from toolpost.runtime.lane import Lane

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_PREVIEW_CHARS = 1000
_TOLD_CHARS = 2000  # a longer result is told by its shape, not its content
_SCALARS = frozenset({int, float, bool, type(None)})


class Result(NamedTuple):
    """An output ready to hand on: its content or a preview, the artifact behind it, and what events tell of it."""

    content: Any
    summary: Any
    text: str | None = None
    artifact_id: str | None = None


def json_text(value: Any) -> str:
    """A value as JSON; ToolOutputError says what in it is not JSON."""
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolOutputError(f"the result is not JSON: {error}") from error


class Results:
    """Settles outputs; `inline_bytes` is the most that is handed on as it is."""

    def __init__(self, artifacts: ArtifactStore, *, inline_bytes: int = 32_768) -> None:
        self._artifacts = artifacts
        self._inline_bytes = inline_bytes

    async def settle(self, output: ToolOutput, lane: Lane, call: CallRef) -> Result:
        """Check an output against the schema and decide what is handed on."""
        content = output.content
        if type(content) is bytes:
            return await self._keep(content, output.media_type, call, preview=None)
        if lane.output_fits is not None:
            _check(content, lane)
        if type(content) in _SCALARS and content == content:  # noqa: PLR0124 - NaN is not equal to itself
            return Result(content, content, output.text)
        text = json_text(content)
        if len(text) > self._inline_bytes:
            return await self._keep_json(content, text, call)
        return Result(content, _summary(content, text), output.text)

    async def _keep_json(self, content: Any, text: str, call: CallRef) -> Result:
        if isinstance(content, str):
            data, media_type = content.encode("utf-8", "surrogatepass"), "text/plain; charset=utf-8"
            return await self._keep(data, media_type, call, preview=content[:_PREVIEW_CHARS])
        return await self._keep(text.encode(), "application/json", call, preview=text[:_PREVIEW_CHARS])

    async def _keep(self, data: bytes, media_type: str, call: CallRef, *, preview: str | None) -> Result:
        ref = await self._artifacts.put(data, artifact_of(call, media_type=media_type))
        content: dict[str, Any] = {"artifact_id": ref.id, "media_type": media_type, "size": ref.size}
        if preview is not None:
            content["preview"] = preview
            content["next"] = "artifact_read and artifact_search get at the rest"
        return Result(content, f"{media_type}, {ref.size} bytes, kept as {ref.id}", None, ref.id)


def _check(content: Any, lane: Lane) -> None:
    try:
        fits = lane.output_fits is None or lane.output_fits(content)
    except ValueError:  # something in it is not JSON at all
        fits = False
    validator = lane.entry.output_validator
    if not fits and validator is not None:
        raise ToolOutputError(validator.issues(content), tool_name=lane.spec.name)


def artifact_of(call: CallRef, *, media_type: str, name: str = "") -> ArtifactRef:
    """A reference that says whose an artifact will be; the store fills in the rest."""
    return ArtifactRef(
        id="",
        sha256="",
        size=0,
        media_type=media_type,
        name=name,
        tenant=call.tenant,
        run_id=call.run_id,
        call_id=call.call_id,
        tool_name=call.tool_name,
        created_at=time.time(),
    )


def summary_of(content: Any) -> Any:
    """What events tell of a result: the result itself when it is short, else its shape."""
    return content if type(content) in _SCALARS else _summary(content, json_text(content))


def _summary(content: Any, text: str) -> Any:
    return JsonText(text) if len(text) <= _TOLD_CHARS else _shape(content, len(text))


def _shape(content: dict[str, Any] | list[Any] | str, size: int) -> str:
    if isinstance(content, dict):
        names = list(map(str, content))
        return f"object with {len(names)} keys ({', '.join(names[:10])}), {size} characters of JSON"
    if isinstance(content, list):
        return f"list of {len(content)} items, {size} characters of JSON"
    return f"text of {size} characters"
