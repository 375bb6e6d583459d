"""What becomes of a tool's output: checked, measured, and kept as an artifact when it is large or binary."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.compact_json import compact_encoder
from toolpost.contracts.errors import ToolOutputError
from toolpost.contracts.events import JsonText
from toolpost.contracts.makers import maker
from toolpost.contracts.outcomes import NO_META, OUTPUT_ISSUES
from toolpost.contracts.storage import ArtifactRef
from toolpost.runtime.ids import writable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.calls import ToolOutput
    from toolpost.contracts.events import CallRef
    from toolpost.contracts.storage import ArtifactStore
    from toolpost.runtime.lane import Lane

_encode = compact_encoder(allow_nan=False)
_PREVIEW_CHARS = 1000
_LOOKED_AT = 4000  # of it, so that a secret at its end is not told in half
_MOST_ISSUES = 5
_TOLD_CHARS = 2000  # a longer result is told by its shape, not its content
_LARGEST = 1e300  # beyond it, and for NaN, the encoder has the last word
_SCALARS = frozenset({int, float, bool, type(None)})


class Result(NamedTuple):
    """An output ready to hand on: its content or a preview, the artifact behind it, and what events tell of it."""

    content: Any
    summary: Any
    text: str | None = None
    artifact_id: str | None = None
    meta: Mapping[str, Any] = NO_META


class Bulk(NamedTuple):
    """An output that is too large, or not JSON, to be handed on as it is."""

    data: bytes
    media_type: str
    preview: str | None
    meta: Mapping[str, Any] = NO_META


_new_result = maker(Result)


def json_text(value: Any) -> str:
    """A value as JSON; ToolOutputError says what in it is not JSON."""
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolOutputError(f"the result is not JSON: {error}") from error


_READABLE = "artifact_read and artifact_search get at the rest"
_UNREADABLE = "no tool here reads the rest; the collection artifact_tools of the built-in tools would"


class Results:
    """Settles outputs; `inline_bytes` is the most that is handed on as it is."""

    def __init__(self, artifacts: ArtifactStore, *, inline_bytes: int = 32_768) -> None:
        self._artifacts = artifacts
        self._inline_bytes = inline_bytes

    def settle(self, output: ToolOutput, lane: Lane) -> Result | Bulk:
        """Check an output against the schema; what is large or binary must be kept before it is handed on."""
        content, text, media_type, meta = output
        if lane.origin is not None and "trust" not in meta:  # whoever knows better where it came from has said so
            meta = {**meta, **lane.origin}
        if content.__class__ is bytes:
            return Bulk(content, media_type, None, meta)
        try:
            fits = lane.output_fits is None or lane.output_fits(content)
        except ValueError:  # something in it is not JSON at all
            fits = False
        if not fits:
            meta = _doubts(content, lane, meta)
        if text is not None and len(text) > self._inline_bytes:
            text = None  # the content says the same, and is kept whole if it is as long
        if content is None or (content.__class__ in _SCALARS and -_LARGEST < content < _LARGEST):
            return _new_result((content, content, text, None, meta))
        encoded = json_text(content)
        if len(encoded) > self._inline_bytes:
            return _bulk(content, encoded, meta)
        return _new_result((content, _summary(content, encoded), text, None, meta))

    async def keep(self, bulk: Bulk, call: CallRef, *, readable: bool) -> Result:
        """Keep a result as an artifact and hand on a preview; `readable` says whether a tool gets at the rest."""
        data, media_type, preview, meta = bulk
        ref = await self._artifacts.put(data, artifact_of(call, media_type=media_type))
        content: dict[str, Any] = {"artifact_id": ref.id, "media_type": media_type, "size": ref.size}
        if preview is not None:
            content["preview"] = call.redact({"preview": preview})["preview"][:_PREVIEW_CHARS]
            content["next"] = _READABLE if readable else _UNREADABLE
        if "note" in meta:
            content["note"] = meta["note"]
        return Result(content, f"{media_type}, {ref.size} bytes, kept as {ref.id}", None, ref.id, meta)


def _doubts(content: Any, lane: Lane, meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Note a result that breaks its schema, count it and hand it on; where outputs are strict, it is a failure."""
    issues = lane.output_issues(content)
    if lane.output_check == "report":
        lane.entry.misfits += 1
        return {**meta, OUTPUT_ISSUES: issues[:_MOST_ISSUES]}
    if lane.entry.config is not None:
        issues = [*issues, f"write outputs: report into source {lane.entry.config.name!r} to take it as it is"]
    raise ToolOutputError(issues, tool_name=lane.name)


def _bulk(content: Any, encoded: str, meta: Mapping[str, Any]) -> Bulk:
    if isinstance(content, str):
        data = content.encode("utf-8", "surrogatepass")
        return Bulk(data, "text/plain; charset=utf-8", content[:_LOOKED_AT], meta)
    return Bulk(encoded.encode(), "application/json", encoded[:_LOOKED_AT], meta)


def artifact_of(call: CallRef, *, media_type: str, name: str = "") -> ArtifactRef:
    """A reference that says whose an artifact will be; the store fills in the rest."""
    return ArtifactRef(
        id="",
        sha256="",
        size=0,
        media_type=writable(media_type),  # these may be a server's words
        name=writable(name),
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
