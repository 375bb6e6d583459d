"""Process tool outputs: scrub credentials, check the schema, store large results as artifacts, cache results."""

from __future__ import annotations

import copy
import re
import time
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, final

from msgspec.structs import replace

from toolpost.catalog.threads import run_in_thread
from toolpost.contracts.calls import JSON, Credential, ToolOutput
from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.errors import StoreError, ToolOutputError
from toolpost.contracts.events import CallRef, JsonText
from toolpost.contracts.ids import writable
from toolpost.contracts.outcomes import NO_META, OUTPUT_ISSUES, Completed
from toolpost.contracts.storage import ArtifactRef, ArtifactStore
from toolpost.policy.redaction import Redactor
from toolpost.schema.json_size import CheckedJson
from toolpost.schema.json_values import compact_encoder, text_within

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.runtime.tool_runtime import ToolRuntime

_encode = compact_encoder(allow_nan=False)
_PREVIEW_CHARS = 1000
_PREVIEW_SEARCHED = 4000  # redacted before the cut, which could split a secret
_READABLE = "artifact_read and artifact_search read the rest"
_UNREADABLE = "no tool here reads the rest; the collection artifact_tools of the built-in tools would"
_MOST_ISSUES = 5
_SUMMARY_CHARS = 2000  # events of a longer result contain its type and size instead
_LARGEST = 1e300  # the encoder checks larger numbers and NaN
_SCALARS = frozenset({int, float, bool, type(None)})
# A shorter text, or one of letters only, may be part of a result by coincidence.
_UNMISTAKABLE = re.compile(r".{16,}|(?=.*[A-Za-z])(?=.*\d).{8,}", re.DOTALL)
_MOST_REDACTORS = 1024
_LONG = 50_000
_NO_SECRETS = Redactor()
_LINE_BREAKS = re.compile(r"\\[bfnrt]")
Key = tuple[str, ...]


# A processed output: content or preview, the summary for events, the text, the id of its artifact, and the metadata.
Result: TypeAlias = "tuple[Any, Any, str | None, str | None, Mapping[str, Any]]"


@final
class LargeResult(NamedTuple):
    """An output that is too large, or binary, and must be stored as an artifact."""

    data: bytes
    media_type: str
    preview: str | None
    meta: Mapping[str, Any] = NO_META


def json_text(value: Any) -> str:
    """Encode a value as JSON, or raise ToolOutputError for the part that is not JSON."""
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolOutputError(f"the result is not JSON: {error}") from error


class ResultProcessor:
    """Turn outputs into results; those above `inline_bytes` are stored as artifacts."""

    def __init__(self, artifacts: ArtifactStore, *, inline_bytes: int = 32_768, clock: Clock = SYSTEM_CLOCK) -> None:
        self._artifacts = artifacts
        self._now = clock.wall
        self._inline_bytes = inline_bytes

    def process(self, output: ToolOutput, runtime: ToolRuntime, encoded: str | None) -> Result | LargeResult:
        """Check an output against the schema and measure it; `encoded` is the JSON of its content, if known."""
        content, text, meta = output.content, output.text, output.meta
        if runtime.origin is not None and "trust" not in meta:  # a tool may know the origin of its content better
            meta = {**meta, **runtime.origin}
        if content.__class__ is bytes:
            return LargeResult(content, output.media_type, None, meta)
        if content.__class__ is CheckedJson:
            return LargeResult(bytes(content), JSON, content[:_PREVIEW_SEARCHED].decode("utf-8", "replace"), meta)
        is_valid = runtime.output_fits
        try:
            fits = is_valid is None or is_valid(content)
        except ValueError:  # a value in it is not JSON
            fits = False
        if not fits:
            meta = _report_issues(content, runtime, meta)
        if text is not None and len(text) > self._inline_bytes:
            text = None  # the content is the same, and is stored completely if it is as long
        if content is None or (content.__class__ in _SCALARS and -_LARGEST < content < _LARGEST):
            return content, content, text, None, meta
        if encoded is None:
            encoded = json_text(content)
        if len(encoded) > self._inline_bytes:
            return _large(content, encoded, meta)
        return content, _summary(content, encoded), text, None, meta

    async def store(self, large: LargeResult, call: CallRef, *, readable: bool) -> Result:
        """Store a result as an artifact and return a preview; with `readable`, a tool can read the rest."""
        data, media_type, preview, meta = large
        try:
            ref = await self._artifacts.put(data, artifact_ref(call, media_type=media_type, at=self._now()))
        except StoreError as error:
            raise StoreError(
                f"`{call.tool_name}` ran, but its result could not be stored: {error.message}. Its effects remain, so "
                "call it again only if that is safe",
                tool_name=call.tool_name,
                cause=error,
            ) from error
        content: dict[str, Any] = {"artifact_id": ref.id, "uri": ref.uri, "media_type": media_type, "size": ref.size}
        if preview is not None:
            content["preview"] = call.redact({"preview": preview})["preview"][:_PREVIEW_CHARS]
            content["next"] = _READABLE if readable else _UNREADABLE
        if "note" in meta:
            content["note"] = meta["note"]
        return content, f"{media_type}, {ref.size} bytes, stored as {ref.id}", None, ref.id, meta


def _report_issues(content: Any, runtime: ToolRuntime, meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Count a result that violates its schema and add the issues to its metadata; raise if outputs are strict."""
    issues = runtime.output_issues(content)
    if runtime.output_check == "report":
        runtime.entry.counts.schema_violations += 1
        return {**meta, OUTPUT_ISSUES: issues[:_MOST_ISSUES]}
    if runtime.entry.config is not None:
        issues = [*issues, f"write outputs: report into source {runtime.entry.config.name!r} to take it as it is"]
    raise ToolOutputError(issues, tool_name=runtime.name)


def _large(content: Any, encoded: str, meta: Mapping[str, Any]) -> LargeResult:
    if isinstance(content, str):
        data = content.encode("utf-8", "surrogatepass")
        return LargeResult(data, "text/plain; charset=utf-8", content[:_PREVIEW_SEARCHED], meta)
    return LargeResult(encoded.encode(), "application/json", encoded[:_PREVIEW_SEARCHED], meta)


def artifact_ref(call: CallRef, *, media_type: str, at: float, name: str = "") -> ArtifactRef:
    """Return a reference with the owner and type of a new artifact; the store adds the rest.

    Secrets in the name, such as arguments, are masked, because lists and events show it.
    """
    if name:
        name = str(call.redact({"name": name})["name"])
    return ArtifactRef(
        id="",
        sha256="",
        size=0,
        media_type=writable(media_type),  # type and name may come from a server
        name=writable(name),
        tenant=call.tenant,
        user=call.user,
        run_id=call.run_id,
        call_id=call.call_id,
        tool_name=call.tool_name,
        created_at=at,
    )


def summary_of(content: Any) -> Any:
    """Return the summary of a result for events: a short result itself, else its type and size."""
    return content if type(content) in _SCALARS else _summary(content, json_text(content))


def _summary(content: Any, text: str) -> Any:
    return JsonText(text) if len(text) <= _SUMMARY_CHARS else _shape(content, len(text))


def _shape(content: dict[str, Any] | list[Any] | str, size: int) -> str:
    if isinstance(content, dict):
        names = list(map(str, content))
        return f"object with {len(names)} keys ({', '.join(names[:10])}), {size} characters of JSON"
    if isinstance(content, list):
        return f"list of {len(content)} items, {size} characters of JSON"
    return f"text of {size} characters"


class CredentialScrubber:
    """Mask the credential of a call in its output, because some servers echo requests."""

    def __init__(self) -> None:
        self._redactors: dict[tuple[tuple[str, ...], frozenset[str]], Redactor] = {}

    async def scrub(
        self, output: ToolOutput, credential: Credential, secrets: frozenset[str]
    ) -> tuple[ToolOutput, str | None]:
        """Mask the credential of a call and the source's other secrets in its output; a long output in a thread.

        Also return the JSON of the content, if the search has encoded it and found nothing.
        """
        redactor = self._redactor(tuple(credential.headers.values()), secrets)
        if redactor is _NO_SECRETS:
            return output, None
        content = output.content
        short = len(content) <= _LONG if isinstance(content, bytes) else text_within(_LONG, [content, output.text])
        if short:
            return _scrub(output, redactor)
        scrubbed: tuple[ToolOutput, str | None] = await run_in_thread(partial(_scrub, output, redactor))
        return scrubbed

    def _redactor(self, values: tuple[str, ...], secrets: frozenset[str]) -> Redactor:
        redactor = self._redactors.get((values, secrets))
        if redactor is None:
            if len(self._redactors) >= _MOST_REDACTORS:
                self._redactors.clear()
            texts = [one for one in (*map(_secret_in, values), *secrets) if _UNMISTAKABLE.fullmatch(one)]
            redactor = self._redactors[values, secrets] = Redactor(texts) if texts else _NO_SECRETS
        return redactor


def _scrub(output: ToolOutput, redactor: Redactor) -> tuple[ToolOutput, str | None]:
    content, text = output.content, output.text
    if isinstance(content, bytes):
        scrubbed = _scrub_bytes(content, redactor)
        if isinstance(content, CheckedJson):  # a mask has nothing that JSON would escape
            scrubbed = CheckedJson(scrubbed)
        return replace(output, content=scrubbed), None
    try:
        encoded = json_text(content)
    except ToolOutputError:
        return output, None  # the same error ends the call when the result is processed
    if not _may_hold_secret(encoded, redactor) and (text is None or redactor.text(text) == text):
        return output, encoded
    return replace(output, content=redactor.texts(content), text=None if text is None else redactor.text(text)), None


def _may_hold_secret(encoded: str, redactor: Redactor) -> bool:
    """Search the JSON of the complete value, which is much faster than a search in each text."""
    if "\\u" in encoded:  # an escaped character may hide a secret from the search
        return True
    if "\\" in encoded:
        encoded = _LINE_BREAKS.sub("", encoded)
    return redactor.text(encoded) != encoded


def _scrub_bytes(content: bytes, redactor: Redactor) -> bytes:
    """Mask secrets in bytes that are UTF-8 text; other bytes are returned unchanged."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    scrubbed = redactor.text(text)
    return content if scrubbed == text else scrubbed.encode()


def _secret_in(value: str) -> str:
    """Return the secret part of a header's value: after `Bearer`, and after the name of a cookie."""
    word = value.rpartition(" ")[2]
    return word.partition("=")[2] or word


class ResultCache:
    """Least-recently-used cache of results of read-only tools; contents are copied in and out."""

    def __init__(self, *, capacity: int = 1000, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = capacity
        self._clock = clock
        self._entries: OrderedDict[Key, tuple[float, Completed]] = OrderedDict()

    def get(self, key: Key) -> Completed | None:
        """Return a result that has not expired."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry[0] < self._clock():
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return replace(entry[1], content=copy.deepcopy(entry[1].content))

    def put(self, key: Key, result: Completed, *, ttl_s: float) -> None:
        """Store a result for `ttl_s` seconds."""
        self._entries[key] = (self._clock() + ttl_s, replace(result, content=copy.deepcopy(result.content)))
        self._entries.move_to_end(key)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)
