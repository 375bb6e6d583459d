"""Events in the `StateStore` of an application."""

from __future__ import annotations

import asyncio
import json
import logging
import struct
from collections import OrderedDict, deque
from hashlib import sha256
from typing import NamedTuple

from toolpost.contracts.events import RunEvent, StoredEvent
from toolpost.contracts.storage import StateStore

_MOST_TRIES = 100
_log = logging.getLogger("toolpost.stores")


class StateEvents:
    """Event sink that saves events in a state store, in order, numbered and chained by run.

    Saves in the background; `flush` and `close` wait for it. Events that cannot be saved, or exceed `most_waiting`,
    count as `lost`. Several processes may emit events of one run if the store raises for a number that is taken.
    """

    def __init__(self, store: StateStore, *, most_waiting: int = 10_000, most_runs: int = 1000) -> None:
        self.lost = 0
        self._store = store
        self._most_waiting = most_waiting
        self._most_runs = most_runs
        self._waiting: deque[RunEvent] = deque()
        self._heads: OrderedDict[str, _Head] = OrderedDict()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def emit(self, event: RunEvent) -> None:
        """Queue one event; from any thread, after the first one was queued in an event loop."""
        if len(self._waiting) >= self._most_waiting:
            self.lost += 1
            return
        self._waiting.append(event)
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:  # plain functions report progress from a thread
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._start)
        else:
            self._start()

    def _start(self) -> None:
        """Save queued events in the background, unless that is in progress."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._save_all())

    async def flush(self) -> None:
        """Wait until all events emitted so far are saved, or lost."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def close(self) -> None:
        """Save the queued events."""
        await self.flush()

    async def _save_all(self) -> None:
        while self._waiting:
            event = self._waiting.popleft()
            try:
                await self._save(event)
            except Exception:  # noqa: BLE001 - foreign code; the other events may still be saved
                self.lost += 1
                _log.exception("the state store could not save %s", event.code.name)

    async def _save(self, event: RunEvent) -> None:
        run_id = event.call.run_id
        head = self._heads.pop(run_id, None) or await self._head(run_id)
        stored = _chained(event, head)
        for _ in range(_MOST_TRIES):
            if await self._is_saved(stored):
                break
            stored = _chained(event, await self._head(run_id))
        else:
            raise TimeoutError(f"other processes save events of run {run_id!r} faster than this process can")
        self._heads[run_id] = _Head(stored.seq, bytes.fromhex(stored.hash))
        if len(self._heads) > self._most_runs:
            self._heads.popitem(last=False)

    async def _is_saved(self, stored: StoredEvent) -> bool:
        """Save an event; return False when another process has taken its number."""
        try:
            await self._store.save_event(stored)
        except Exception:
            history = await self._store.load_history(stored.run_id)
            standing = next((event for event in history if event.seq == stored.seq), None)
            if standing is None:
                raise
            return standing.hash == stored.hash  # it was saved, and only the response was lost
        return True

    async def _head(self, run_id: str) -> _Head:
        """Load the head of a run, which another process may have advanced."""
        history = await self._store.load_history(run_id)
        return _Head(history[-1].seq, bytes.fromhex(history[-1].hash)) if history else _Head()


class _Head(NamedTuple):
    """Number and link of the last event of a run."""

    seq: int = 0
    hash: bytes = b""


def _chained(event: RunEvent, head: _Head) -> StoredEvent:
    """Build the stored event that follows a head."""
    call, payload, seq = event.call, event.payload, head.seq + 1
    digest = plain_link(
        head.hash,
        join_ids(call.run_id, call.call_id, call.tenant),
        seq=seq,
        code=int(event.code),
        at=event.at,
        payload=json.dumps(payload),
    )
    return StoredEvent(
        id=seq,
        run_id=call.run_id,
        seq=seq,
        code=event.code,
        at=event.at,
        call_id=call.call_id,
        tenant=call.tenant,
        payload=payload,
        hash=digest.hex(),
        user=call.user,
    )


def join_ids(*ids: str) -> str:
    """Join the IDs of an event for a chain without a key, with their lengths to keep them distinct."""
    return "|".join([*map(str, map(len, ids)), *ids])


def plain_link(previous: bytes, ids: str, *, seq: int, code: int, at: float, payload: str) -> bytes:
    """Return the link of a chain without a key."""
    return sha256(previous + struct.pack(">d", at) + f"{seq}|{code}|{ids}|{payload}".encode()).digest()
