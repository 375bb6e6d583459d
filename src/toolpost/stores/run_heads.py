"""Heads of runs: the status of a run after its last event, and checks of the order of its events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import orjson
from msgspec import Struct

from toolpost.contracts.events import CallRef, EventCode, RunSummary, StoredEvent
from toolpost.stores.chain import LogKey
from toolpost.stores.event_rendering import RenderedEvents, are_ascii, escape_surrogates, finite_time

FINISHED = frozenset({"completed", "failed"})
ASKED = frozenset({int(EventCode.APPROVAL_REQUESTED), int(EventCode.CALL_PAUSED)})
_REQUESTED = int(EventCode.TOOL_CALL_REQUESTED)
_ANSWERED = frozenset({int(EventCode.APPROVAL_GRANTED), int(EventCode.APPROVAL_DENIED), int(EventCode.CALL_RESUMED)})
_OPENING = frozenset({_REQUESTED, int(EventCode.CALL_RESUMED)})
_STATUS_BY_CODE: dict[int, str] = {
    _REQUESTED: "running",
    int(EventCode.TOOL_CALL_STARTED): "running",
    int(EventCode.CALL_RESUMED): "running",
    int(EventCode.APPROVAL_REQUESTED): "paused",
    int(EventCode.CALL_PAUSED): "paused",
    int(EventCode.TOOL_CALL_COMPLETED): "completed",
    int(EventCode.TOOL_CALL_FAILED): "failed",
}


class RunHead(Struct, gc=False):
    """The state of a run after its last event. Mutable: it advances with every segment.

    `nr` numbers the runs of a log in the order of their first events. `open_calls` counts calls that were requested
    and have not ended. `hash` is the hash of the last segment; the table contains its `mac`.
    """

    nr: int
    run_id: str
    tenant: str
    user: str
    tool_name: str
    status: str
    started_at: float
    updated_at: float
    seq: int
    mac: bytes
    root_call: str
    open_calls: int
    hash: bytes = b""

    @classmethod
    def of_first(cls, call: CallRef, at: float, nr: int = 0) -> RunHead:
        """Return the head before the first event of a run; a run without calls is completed.

        Raises TypeError if the name of the run cannot be encoded.
        """
        run_id, tenant, user, tool_name = call.run_id, call.tenant, call.user, call.tool_name
        if not are_ascii(user, tool_name):
            user, tool_name = escape_surrogates(user), escape_surrogates(tool_name)
        start, began = chain_start(nr, run_id, tenant, tool_name), finite_time(at)
        return cls(nr, run_id, tenant, user, tool_name, "completed", began, began, 0, b"", call.call_id, 0, start)

    @property
    def chain_start(self) -> bytes:
        """The value that the first segment continues from; changing one of its columns breaks the chain."""
        return chain_start(self.nr, self.run_id, self.tenant, self.tool_name)

    def append(
        self, call: CallRef, rendered: RenderedEvents, last_id: int, key: LogKey
    ) -> tuple[int, int, int, str, str, str, str, str, bytearray, str, float, float]:
        """Number and chain events of one call; return the columns of their segment.

        Raises TypeError, without a change, if an id cannot be encoded.
        """
        tool_name, correlation_id, text = rendered.tool_name, rendered.correlation_id, rendered.text
        call_id, user, first = call.call_id, call.user, self.seq + 1
        names = (last_id, first, call_id, user, tool_name, correlation_id)
        self.hash = chained = key.chain(self.hash, names, text)
        self.seq += len(rendered.codes)
        self.updated_at = finite_time(rendered.events[-1].at)
        self._follow(rendered.codes, call_id)
        # A bytearray, because sqlite3 searches adapters for bytes, which takes longer than inserting them.
        names_and_text = (call_id, user, tool_name, correlation_id, text.decode(), bytearray(chained))
        first_at = finite_time(rendered.events[0].at)
        return last_id, self.nr, first, *names_and_text, join_codes(rendered.codes), first_at, self.updated_at

    def update_status(self, code: int, call_id: str) -> None:
        """Update the status after an event."""
        self._follow((code,), call_id)

    def _follow(self, codes: tuple[int, ...], call_id: str) -> None:
        """Update the status after events of one call."""
        is_root = call_id == self.root_call
        self.status, self.open_calls, leads = _follow_codes(self.status, self.open_calls, codes, is_root)
        if leads:
            self.root_call = call_id

    def columns(self) -> tuple[Any, ...]:
        """Return the values of the table's columns."""
        return (
            self.nr,
            self.run_id,
            self.tenant,
            self.user,
            self.tool_name,
            self.status,
            self.started_at,
            self.updated_at,
            self.seq,
            bytearray(self.mac),
            self.root_call,
            self.open_calls,
        )

    def agrees_with(self, events: Sequence[StoredEvent]) -> bool:
        """Return whether the head follows from the events of the run."""
        if not events:
            return True  # the chain reports how many are missing
        first, last = events[0], events[-1]
        call = CallRef(self.run_id, first.call_id, self.tool_name, self.tenant, first.user, "", dict)
        head = RunHead.of_first(call, first.at, self.nr)
        for event in events:
            head.update_status(int(event.code), event.call_id)
        head.seq, head.mac, head.hash, head.updated_at = self.seq, self.mac, self.hash, last.at
        return head == self

    def summary(self) -> RunSummary:
        """Return the summary of the run."""
        return RunSummary(
            run_id=self.run_id,
            tenant=self.tenant,
            user=self.user,
            tool_name=self.tool_name,
            status=self.status,
            started_at=self.started_at,
            updated_at=self.updated_at,
            events=self.seq,
            call_id=self.root_call,
        )


@lru_cache(maxsize=1024)
def join_codes(codes: tuple[int, ...]) -> str:
    """Return the different codes of events, in order."""
    return " ".join(map(str, sorted(set(codes))))


@lru_cache(maxsize=1024)  # nearly all calls have one of a few sequences
def _follow_codes(
    status: str,
    open_calls: int,
    codes: tuple[int, ...],
    is_root: bool,  # noqa: FBT001 - the cache takes twice as long with a keyword
) -> tuple[str, int, bool]:
    """Return the status of a run after events of a call, its open calls, and whether that call now leads the run.

    A run ends with the call that began it, not with a nested call. After its end another call, or the answer to a
    question, may start the run again.
    """
    leads = is_root
    for code in codes:
        turn = _STATUS_BY_CODE.get(code)
        if turn is None:
            continue
        if code == _REQUESTED:
            open_calls += 1
        elif turn in FINISHED and open_calls:
            open_calls -= 1
        if status in FINISHED:
            if code in _OPENING:
                leads, status = True, turn
        elif turn not in FINISHED or leads:
            status = turn
    return status, open_calls, leads


def chain_start(nr: int, run_id: str, tenant: str, tool_name: str) -> bytes:
    """Return the value that the first segment of a run continues from; raise TypeError if a name cannot be encoded."""
    return orjson.dumps((nr, run_id, tenant, tool_name))


def find_open_calls(events: Iterable[StoredEvent]) -> list[RunSummary]:
    """Return the calls of a run that were requested and have not ended, innermost first, each as a summary."""
    found: dict[str, RunHead] = {}
    for event in events:
        tool_name = event.payload.get("tool_name", "")
        call = CallRef(event.run_id, event.call_id, tool_name, event.tenant, event.user, "", dict)
        head = found.setdefault(event.call_id, RunHead.of_first(call, event.at))
        head.seq, head.updated_at = head.seq + 1, event.at
        head.update_status(int(event.code), event.call_id)
    return [head.summary() for head in reversed(found.values()) if head.open_calls]


def find_second_answers(events: Iterable[StoredEvent]) -> Iterator[str]:
    """Report pending actions that were answered again without being requested again.

    A call that waits for a nested call resumes automatically, and possibly twice.
    """
    answered: set[str] = set()
    for event in events:
        if event.code not in ASKED | _ANSWERED or event.payload.get("kind") == "call":
            continue
        question = event.payload.get("pending_id")
        if event.code in ASKED:
            answered.discard(question)
        elif question is not None and not event.payload.get("recovered"):
            if question in answered:
                yield f"question {question!r} was answered a second time, by event {event.seq}"
            answered.add(question)
