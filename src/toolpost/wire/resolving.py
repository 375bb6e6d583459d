"""Look-ups that are shared while they run, and judged addresses that are kept for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from toolpost.wire.transports import Route

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolpost.wire.network import NetworkPolicy, Resolver, Target

_MOST_PINS = 1024
_FOR_EVER = float("inf")


class SharedLookups:
    """A resolver that asks once for all who want the same name at the same time."""

    def __init__(self, resolver: Resolver | None = None) -> None:
        self._resolver = resolver
        self._running: dict[tuple[str, int], asyncio.Task[Iterable[tuple[Any, ...]]]] = {}

    async def __call__(self, host: str, port: int, /, *, type: int) -> Iterable[tuple[Any, ...]]:
        key = (host, port)
        if (running := self._running.get(key)) is None:
            running = self._running[key] = asyncio.create_task(self._ask(host, port, type))
            running.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(running)  # whoever gives up does not take the answer from the others

    async def close(self) -> None:
        """Stop asking."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _ask(self, host: str, port: int, kind: int) -> Iterable[tuple[Any, ...]]:
        look_up = self._resolver or asyncio.get_running_loop().getaddrinfo
        return await look_up(host, port, type=kind)

    def _forget(self, key: tuple[str, int], done: asyncio.Task[Iterable[tuple[Any, ...]]]) -> None:
        del self._running[key]
        if not done.cancelled():
            done.exception()  # taken, so that nobody is told of a failure for which nobody waits any more


class _Pin(NamedTuple):
    routes: tuple[Route, ...]
    until: float


class Pins:
    """The ways to the hosts that one policy lets through.

    What a name's look-up said is kept for `keep_s`, a literal address for ever; what DNS says meanwhile does not
    count, and what it says afterwards is judged again.
    """

    def __init__(self, policy: NetworkPolicy, lookups: SharedLookups, *, keep_s: float) -> None:
        self._policy = policy
        self._lookups = lookups
        self._keep_s = keep_s
        self._pins: dict[_Key, _Pin] = {}

    def known(self, target: Target) -> tuple[Route, ...] | None:
        """Where the target may be reached, as far as that was found out lately."""
        pin = self._pins.get(_key(target))
        if pin is None or pin.until < asyncio.get_running_loop().time():
            return None
        return pin.routes

    async def find(self, target: Target, *, timeout_s: float = 10.0) -> tuple[Route, ...]:
        """Look the target up and judge what was found; the address that answered last comes before the others."""
        if (known := self.known(target)) is not None:
            return known
        now = asyncio.get_running_loop().time()
        addresses = await self._policy.resolve(target, resolver=self._lookups, timeout_s=timeout_s)
        routes = tuple(Route.to(target, address) for address in addresses)
        if (old := self._pins.get(_key(target))) is not None:
            routes = tuple(sorted(routes, key=lambda route: route != old.routes[0]))
        self._keep(target, _Pin(routes, _FOR_EVER if target.address else now + self._keep_s))
        return routes

    def demote(self, target: Target, route: Route) -> None:
        """Try this one last from now on: it does not answer."""
        pin = self._pins.get(_key(target))
        if pin is not None:
            self._keep(target, _Pin(tuple(sorted(pin.routes, key=lambda other: other == route)), pin.until))

    def forget(self, target: Target) -> None:
        """Look the target up again next time: it does not answer."""
        self._pins.pop(_key(target), None)

    def _keep(self, target: Target, pin: _Pin) -> None:
        if len(self._pins) >= _MOST_PINS:
            self._pins.pop(next(iter(self._pins)))
        self._pins[_key(target)] = pin


_Key: TypeAlias = tuple[str, str, int]


def _key(target: Target) -> _Key:
    return target.scheme, target.ascii_host, target.port
