"""Wait for changes of a store: many waiters, one poller per process."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

from toolpost.contracts.errors import StoreError

Topic: TypeAlias = tuple[str, ...]  # such as ("pending", id)
States: TypeAlias = Callable[[Collection[Topic]], Awaitable[Mapping[Topic, Any]]]


class _Waiter(NamedTuple):
    known: Any
    woken: asyncio.Future[None]


class Changes:
    """Wakes the tasks of this process that wait until the state of a topic differs from the one that they know.

    `notify` wakes them after a write of this process. For writes of other processes, one task polls for all waiters,
    immediately after a `nudge`: `read_version` returns a value that differs after each write, and `read_states` the
    states of topics. Without `read_version` there are no other processes.
    """

    def __init__(
        self, read_states: States, read_version: Callable[[], Awaitable[object]] | None = None, *, poll_s: float = 0.1
    ) -> None:
        self._read_states = read_states
        self._read_version = read_version
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._poller: asyncio.Task[None] | None = None
        self._nudged = asyncio.Event()
        self.waiters: dict[Topic, dict[_Waiter, None]] = {}  # in the order in which they began to wait

    async def wait(self, known: Mapping[Topic, Any], *, timeout_s: float) -> Mapping[Topic, Any]:
        """Wait until a topic has another state than in `known`; return the states, or `known` after `timeout_s`."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s == math.inf else loop.time() + timeout_s
        while True:
            woken: asyncio.Future[None] = loop.create_future()
            waiters = {topic: _Waiter(state, woken) for topic, state in known.items()}
            with self._lock:
                for topic, waiter in waiters.items():
                    self.waiters.setdefault(topic, {})[waiter] = None
            try:
                # After registration: a change in between must not be missed.
                states = await self._read_states(known.keys())
                if states != known:
                    return states
                self._start_poller(loop)
                async with asyncio.timeout_at(deadline):
                    await woken
            except TimeoutError:
                return known
            finally:
                self._remove(waiters)

    async def wait_for(self, topics: Collection[Topic], known: object, *, timeout_s: float) -> Mapping[Topic, Any]:
        """Wait as `wait` does; return the states immediately if `known` is not a result for these topics."""
        if isinstance(known, dict) and known.keys() == set(topics):
            return await self.wait(cast("dict[Topic, Any]", known), timeout_s=timeout_s)
        return await self._read_states(topics)

    def waited_for(self) -> list[Topic]:
        """Return the topics that a task waits for, from any thread."""
        with self._lock:
            return list(self.waiters)

    def notify(self, topics: Iterable[Topic]) -> None:
        """Wake the waiters of topics, from any thread."""
        with self._lock:
            woken = [waiter for topic in topics for waiter in self.waiters.pop(topic, ())]
        for waiter in woken:
            _wake(waiter)

    def nudge(self) -> None:
        """Poll now, from any thread: another process has written."""
        with self._lock:
            poller = self._poller if self.waiters else None
        if poller is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                poller.get_loop().call_soon_threadsafe(self._nudged.set)

    def close(self) -> None:
        """Stop polling and wake all waiters, which then read the closed store."""
        if self._poller is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                self._poller.get_loop().call_soon_threadsafe(self._poller.cancel)
        self.notify(list(self.waiters))

    def _remove(self, waiters: Mapping[Topic, _Waiter]) -> None:
        with self._lock:
            for topic, waiter in waiters.items():
                others = self.waiters.get(topic, {})
                others.pop(waiter, None)
                if not others:
                    self.waiters.pop(topic, None)

    def _start_poller(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._read_version is None:
            return
        poller = self._poller
        if poller is None or poller.done() or poller.get_loop() is not loop:
            self._nudged = asyncio.Event()  # of this loop
            self._poller = loop.create_task(self._poll(self._read_version))

    async def _poll(self, read_version: Callable[[], Awaitable[object]]) -> None:
        version: object = None
        while self.waiters:
            with contextlib.suppress(StoreError):  # the disk may recover; writers report the error
                newest = await read_version()
                if newest != version:
                    await self._wake_changed()
                    version = newest
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._nudged.wait()
            self._nudged.clear()

    async def _wake_changed(self) -> None:
        with self._lock:
            topics = list(self.waiters)
        states = await self._read_states(topics)
        with self._lock:
            waiters = [(waiter, states[topic]) for topic in topics for waiter in self.waiters.get(topic, ())]
        for waiter, state in waiters:
            if waiter.known != state:
                _wake(waiter)


def _wake(waiter: _Waiter) -> None:
    with contextlib.suppress(RuntimeError):  # its loop is closed
        waiter.woken.get_loop().call_soon_threadsafe(_set_done, waiter.woken)


def _set_done(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
