"""Details of runs from their events: the caller, the error, the time at work and in pauses, and the progress."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from toolpost.contracts.events import CallRef, EventCode, RunDetails, RunSummary, StoredEvent
from toolpost.stores.run_heads import ASKED, FINISHED, RunHead

_REQUESTED, _FAILED = int(EventCode.TOOL_CALL_REQUESTED), int(EventCode.TOOL_CALL_FAILED)
_PROGRESS = int(EventCode.SUBAGENT_ACTION)


class Facts(Struct, gc=False):
    """The facts of an event that details use, of any type; the decoder skips all others."""

    caller: Any = None
    error_code: Any = None
    pending_id: Any = None
    text: Any = None
    fraction: Any = None


class FactEntry(NamedTuple):
    """An event of a call, with some of its facts."""

    call_id: str
    code: int
    at: float
    facts: Facts


# Only these facts are decoded: with all of them, a segment takes four times as long.
_decode = msgspec.json.Decoder(list[tuple[int, float, Facts]]).decode


def read_facts(call_id: str, events: str) -> list[FactEntry]:
    """Return the entries of a segment; none if it is damaged, which `verify` reports."""
    try:
        return [FactEntry(call_id, code, at, facts) for code, at, facts in _decode(events)]
    except msgspec.MsgspecError:
        return []


def fact_entry(event: StoredEvent) -> FactEntry:
    """Return the entry of a stored event."""
    known = {name: event.payload.get(name) for name in Facts.__struct_fields__}
    return FactEntry(event.call_id, int(event.code), event.at, Facts(**known))


def describe_run(run: RunSummary, events: Iterable[FactEntry], *, parent_run: str | None) -> RunDetails:
    """Return the details of a run from its events in order.

    Events other than those of calls and questions may be missing, and the last report of progress may follow at the
    end. Time passes in the status that the events before have led to.
    """
    head: RunHead | None = None
    spent = {"running": 0.0, "paused": 0.0}
    caller: str | None = None
    error_code: str | None = None
    progress: dict[str, Any] | None = None
    asked: dict[str, None] = {}
    for call_id, code, at, facts in events:
        if code == _PROGRESS:
            progress = {"text": _text(facts.text), "fraction": facts.fraction}
        if head is None:
            call = CallRef(run.run_id, call_id, run.tool_name, run.tenant, run.user, "", dict)
            head = RunHead.of_first(call, at)
        _pass_time(spent, head, at)
        head.update_status(code, call_id)
        if code == _REQUESTED and caller is None:
            caller = _text(facts.caller)
        elif code in ASKED and isinstance(facts.pending_id, str):
            asked[facts.pending_id] = None
        if head.status != "failed":
            error_code = None
        elif code == _FAILED and call_id == head.root_call:
            error_code = _text(facts.error_code)
    if head is not None:
        _pass_time(spent, head, run.updated_at)
    source, dot, _ = run.tool_name.partition(".")
    return RunDetails(
        caller=caller,
        source=source if dot else None,
        error_code=error_code,
        duration_ms=(run.updated_at - run.started_at) * 1000,
        work_ms=spent["running"] * 1000,
        waited_ms=spent["paused"] * 1000,
        pending_ids=tuple(asked),
        progress=None if run.status in FINISHED else progress,
        parent_run=parent_run,
    )


def _pass_time(spent: dict[str, float], head: RunHead, until: float) -> None:
    if head.status in spent:
        spent[head.status] += max(0.0, until - head.updated_at)
    head.updated_at = max(head.updated_at, until)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
