"""Chains of runs: number the events of a batch, and chain them to the heads of their runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Protocol, TypeAlias

from toolpost.contracts.events import CallRef, RunEvent
from toolpost.stores.chain import LogKey
from toolpost.stores.event_rendering import are_ascii, escape_call_ids, escape_surrogates, render_segments
from toolpost.stores.run_heads import RunHead

MAX_HEADS = 10_000
SEGMENT_WIDTH, HEAD_WIDTH = 12, 13  # columns
RunName: TypeAlias = tuple[str, str]  # tenant and run id
CallEvents: TypeAlias = tuple[CallRef, list[RunEvent]]  # consecutive events of one call in a run


class Numbers(Protocol):
    """The last numbers that were assigned to events and runs, and the number of runs. They advance with every event."""

    last_event: int
    last_run: int
    runs: int


class RunChains:
    """Caches the heads of recent runs, and advances them."""

    def __init__(self, key: LogKey, numbers: Numbers) -> None:
        self.heads: dict[RunName, RunHead] = {}
        self.touched: dict[int, RunHead] = {}  # by number
        self._key = key
        self._numbers = numbers

    def missing(self, names: Iterable[RunName]) -> list[str]:
        """Return the IDs of runs whose heads the cache lacks; the others become the most recently used."""
        heads = self.heads
        missing: list[str] = []
        for name in names:
            head = heads.pop(name, None)
            if head is None:
                missing.append(name[1])
            else:
                heads[name] = head
        return missing if are_ascii(*missing) else list(map(escape_surrogates, missing))

    def load(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add heads to the cache, from rows of their columns and the hash of their last segment."""
        end_mac = self._key.end_mac
        for row in rows:
            head = RunHead(*row)
            if head.mac != end_mac(head.hash):
                head.hash = b""  # tampered with: later events are not chained to it, so `verify` reports it
            self.heads.setdefault((head.tenant, head.run_id), head)

    def append(self, runs: dict[RunName, list[CallEvents]]) -> list[Any]:
        """Chain events, given by run, to heads in the cache and to new ones; return the columns of their segments."""
        columns: list[Any] = []
        for name, calls in runs.items():
            self._chain(name, calls, columns)
        return columns

    def seal(self) -> tuple[list[bytes], list[RunHead]]:
        """Compute the MACs of the heads that changed; return the previous MACs (empty for a new run) and the heads."""
        heads = list(self.touched.values())
        old = [head.mac for head in heads]
        for head in heads:
            head.mac = self._key.end_mac(head.hash)
        return old, heads

    def finish(self) -> None:
        """End a transaction: drop the heads that were not used for the longest time."""
        self.touched.clear()
        for name in list(islice(self.heads, max(0, len(self.heads) - MAX_HEADS))):
            del self.heads[name]

    def remove(self, name: RunName) -> None:
        """Remove a deleted run from the cache."""
        head = self.heads.pop(name, None)
        if head is not None:
            self.touched.pop(head.nr, None)

    def forget(self) -> None:
        """Drop the cache."""
        self.heads.clear()
        self.touched.clear()

    def _chain(self, name: RunName, calls: Iterable[CallEvents], columns: list[Any]) -> None:
        """Chain the events of a run, and append the columns of their segments."""
        head = self.heads.get(name)
        for call, events in calls:
            if head is None:
                head = self._begin_run(call, events[0].at)
            try:
                self._append(head, call, events, columns)
            except TypeError:  # IDs that UTF-8 cannot encode
                head.root_call = escape_surrogates(head.root_call)
                self._append(head, escape_call_ids(call), events, columns)

    def _begin_run(self, call: CallRef, at: float) -> RunHead:
        """Return the head of a run that the cache does not have under the name in the call."""
        numbers = self._numbers
        nr = numbers.last_run + 1
        try:
            head = RunHead.of_first(call, at, nr)
        except TypeError:
            call = escape_call_ids(call)
            known = self.heads.get((call.tenant, call.run_id))
            if known is not None:
                return known
            head = RunHead.of_first(call, at, nr)
        numbers.last_run = nr
        numbers.runs += 1
        self.heads[head.tenant, head.run_id] = head
        return head

    def _append(self, head: RunHead, call: CallRef, events: Sequence[RunEvent], columns: list[Any]) -> None:
        """Append the columns of the segments of a call's events."""
        numbers = self._numbers
        for rendered in render_segments(call, events):
            last_id = numbers.last_event + len(rendered.events)
            columns += head.append(call, rendered, last_id, self._key)
            numbers.last_event = last_id
        self.touched[head.nr] = head


def group_by_run(events: Iterable[RunEvent]) -> dict[RunName, list[CallEvents]]:
    """Group events by run, then consecutive events by call; the order within a run is kept."""
    runs: dict[RunName, list[CallEvents]] = {}
    known: CallRef | None = None
    part: list[RunEvent] = []
    for event in events:
        call = event.call
        if call is not known:  # most events of a call are consecutive
            known = call
            calls = runs.setdefault((call.tenant, call.run_id), [])
            if not calls or calls[-1][0] is not call:
                calls.append((call, []))
            part = calls[-1][1]
        part.append(event)
    return runs
