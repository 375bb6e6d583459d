"""Render events as the text of a segment: redacted, valid JSON, and never lost because of a value."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from typing import Any, TypeAlias

import orjson
from msgspec import Struct
from msgspec.structs import replace

from toolpost.contracts.events import CallRef, EventCode, RunEvent
from toolpost.schema.json_values import compact_encoder

MAX_BYTES = 256 * 1024 * 1024  # well below the gigabyte at which SQLite refuses a value
LARGE_SEGMENT = 1024 * 1024  # bytes; several events that need more become several segments
encode_any = compact_encoder(allow_nan=False, ensure_ascii=False, default=str)
# Only values that both encoders write in the same way; orjson refuses the others.
_EXACT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_NUMBERS = {code: int(code) for code in EventCode}  # in a third of the time of int()
_REQUESTED, _STARTED = int(EventCode.TOOL_CALL_REQUESTED), int(EventCode.TOOL_CALL_STARTED)
_OF_START = frozenset({"input", "checks_ms", "auth_ms"})  # the arguments, and numbers

Entry: TypeAlias = tuple[int, float, Any]  # code, time and redacted facts of an event in a segment


class RenderedEvents(Struct, frozen=True, gc=False):
    """Redacted events of one call; `text` is a JSON array of entries."""

    events: Sequence[RunEvent]
    codes: tuple[int, ...]
    tool_name: str
    correlation_id: str
    text: bytes


def render_segments(call: CallRef, events: Sequence[RunEvent]) -> Sequence[RenderedEvents]:
    """Render events of one call as one segment, or as several if it would be large."""
    rendered = render_events(call, events)
    if len(rendered.text) <= LARGE_SEGMENT or len(events) == 1:
        return (rendered,)
    half = len(events) // 2
    return (*render_segments(call, events[:half]), *render_segments(call, events[half:]))


def render_events(call: CallRef, events: Sequence[RunEvent]) -> RenderedEvents:
    """Redact and render events of one call; never raise, because an event must not be lost."""
    codes = tuple([_NUMBERS.get(event.code) or int(event.code) for event in events])
    try:
        tool_name, correlation_id, entries = _redact_events(call, events, codes)
        text = orjson.dumps(entries, option=_EXACT)
        # `in` would try a number first. NaN is written as null, too.
        if text.find(b"null") >= 0 or len(text) > MAX_BYTES:
            text = _fit_to_store(encode_any(entries))
    except Exception:  # noqa: BLE001 - a value is not JSON, or its redaction failed: find out which
        tool_name, correlation_id, text = _render_one_by_one(call, events)
    return RenderedEvents(events, codes, tool_name, correlation_id, text)


def _redact_events(call: CallRef, events: Sequence[RunEvent], codes: Sequence[int]) -> tuple[str, str, list[Entry]]:
    """Redact the names of a call and the facts of its events.

    The names are redacted together with the first facts. The arguments in the request and the start of a call are
    usually one object, which is redacted once.
    """
    redact, first = call.redact, events[0].facts
    if "tool_name" in first or "correlation_id" in first:
        names, shown = redact({"tool_name": call.tool_name, "correlation_id": call.correlation_id}), redact(first)
    else:
        names = shown = redact({"tool_name": call.tool_name, "correlation_id": call.correlation_id, **first})
    tool_name, correlation_id = names.pop("tool_name", ""), names.pop("correlation_id", "")
    entries: list[Entry] = [(codes[0], events[0].at, shown)]
    arguments = first.get("params", redact) if codes[0] == _REQUESTED else redact  # never the arguments of a call
    for place in range(1, len(codes)):
        event, code = events[place], codes[place]
        facts = event.facts
        if code == _STARTED and facts.get("input", entries) is arguments and facts.keys() <= _OF_START:
            entries.append((code, event.at, {**facts, "input": shown["params"]}))
        else:
            entries.append((code, event.at, redact(facts)))
    if not are_ascii(tool_name, correlation_id):
        tool_name, correlation_id = escape_surrogates(tool_name), escape_surrogates(correlation_id)
    return tool_name, correlation_id, entries


def _render_one_by_one(call: CallRef, events: Sequence[RunEvent]) -> tuple[str, str, bytes]:
    try:
        tool_name, correlation_id, _ = _redact_events(call, [replace(events[0], facts={})], (0,))
    except Exception:  # noqa: BLE001 - redaction is foreign code; each event reports it
        tool_name = correlation_id = ""
    text = f"[{','.join([_render_event(call, event) for event in events])}]"
    return tool_name, correlation_id, text.encode()


def _render_event(call: CallRef, event: RunEvent) -> str:
    code, at = int(event.code), finite_time(event.at)
    try:
        return encode_entry((code, at, call.redact(event.facts)))
    except Exception as exc:  # noqa: BLE001 - values and redaction are foreign code; the event itself is kept
        return encode_entry((code, at, {"unrenderable": type(exc).__name__}))


def finite_time(at: float) -> float:
    """Return the time of an event; 0 if it is not a finite number, which SQLite cannot store."""
    return float(at) if isfinite(at) else 0.0


def encode_entry(entry: Entry) -> str:
    """Encode one entry as JSON."""
    try:
        text = encode_any(entry)
    except ValueError:  # NaN and infinity are replaced by their names
        text = encode_any(json.loads(json.dumps(entry, default=str), parse_constant=str))
    return _fit_to_store(text).decode()


def _fit_to_store(text: str) -> bytes:
    """Encode a JSON text, with lone surrogates escaped; raise OverflowError if it is too large."""
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        encoded = json.dumps(json.loads(text), separators=(",", ":")).encode()
    if len(encoded) > MAX_BYTES:
        raise OverflowError(len(encoded))
    return encoded


def escape_call_ids(call: CallRef) -> CallRef:
    """Escape lone surrogates in the ids of a call; return the same object if there are none."""
    if (call.run_id + call.call_id + call.tenant + call.user).isascii():
        return call
    return replace(
        call,
        run_id=escape_surrogates(call.run_id),
        call_id=escape_surrogates(call.call_id),
        tenant=escape_surrogates(call.tenant),
        user=escape_surrogates(call.user),
    )


def are_ascii(*texts: str) -> bool:
    """Return whether no text needs escaping, which is the usual case."""
    try:
        return "".join(texts).isascii()
    except TypeError:  # a caller passed another type as an id
        return False


def escape_surrogates(text: str) -> str:
    """Escape lone surrogates in a text."""
    whole = str(text)
    return whole if whole.isascii() else whole.encode("utf-8", "backslashreplace").decode()
