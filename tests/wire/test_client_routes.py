"""Look-ups that are shared, and addresses that are kept."""

import asyncio
import socket
from typing import Any

import pytest

from tests.wire.stubs import StubResolver
from toolpost.contracts.errors import ToolConnectionError
from toolpost.wire.client import RouteCache, SharedLookups
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.targets import parse_target

PUBLIC, OTHER = "93.184.216.34", "93.184.216.35"
TARGET = parse_target("https://a.example/")


def pins(resolver: StubResolver, keep_s: float = 60.0) -> RouteCache:
    return RouteCache(NetworkPolicy(), SharedLookups(resolver), keep_s=keep_s)


class Gate:
    """A resolver that answers when it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.asked = 0

    async def __call__(self, host: str, port: int, /, *, type: int) -> list[tuple[Any, ...]]:
        self.asked += 1
        await self.opened.wait()
        if host == "nowhere":
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, type, 6, "", (PUBLIC, port))]


async def started(gate: Gate, *asking: asyncio.Task[Any]) -> None:
    async with asyncio.timeout(30):
        while not gate.asked:
            await asyncio.sleep(0)


async def test_those_who_ask_for_one_name_at_a_time_share_a_look_up() -> None:
    gate = Gate()
    lookups = SharedLookups(gate)
    asking = [asyncio.ensure_future(lookups("a.example", 80, type=1)) for _ in range(5)]
    await started(gate)
    asking[0].cancel()
    gate.opened.set()

    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert all(answer == answers[1] and not isinstance(answer, BaseException) for answer in answers[1:])
    assert gate.asked == 1


async def test_a_failed_look_up_is_reported_to_each_and_forgotten() -> None:
    gate = Gate()
    lookups = SharedLookups(gate)
    asking = [asyncio.ensure_future(lookups("nowhere", 80, type=1)) for _ in range(3)]
    await started(gate)
    gate.opened.set()

    assert [type(error) for error in await asyncio.gather(*asking, return_exceptions=True)] == [socket.gaierror] * 3
    with pytest.raises(socket.gaierror):
        await lookups("nowhere", 80, type=1)
    assert gate.asked == 2


async def test_closing_ends_what_no_one_answers() -> None:
    gate = Gate()
    lookups = SharedLookups(gate)
    asking = asyncio.ensure_future(lookups("a.example", 80, type=1))
    await started(gate)
    await lookups.close()

    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_an_address_that_does_not_answer_is_tried_last() -> None:
    kept = pins(StubResolver([PUBLIC, OTHER]))
    first, second = await kept.find(TARGET)
    kept.demote(TARGET, first)

    assert await kept.find(TARGET) == (second, first)
    assert kept.known(TARGET) == (second, first)


async def test_the_address_that_answered_last_stays_first_after_a_new_look_up() -> None:
    kept = pins(StubResolver([PUBLIC, OTHER]), keep_s=0.0)
    first, second = await kept.find(TARGET)
    kept.demote(TARGET, first)

    assert kept.known(TARGET) is None
    assert await kept.find(TARGET) == (second, first)


async def test_what_is_forgotten_is_looked_up_again() -> None:
    resolver = StubResolver([PUBLIC], [OTHER])
    kept = pins(resolver)
    before = await kept.find(TARGET)
    kept.forget(TARGET)

    assert kept.known(TARGET) is None
    assert await kept.find(TARGET) != before
    kept.forget(parse_target("http://never.example/"))
    kept.demote(parse_target("http://never.example/"), before[0])


async def test_only_so_many_hosts_are_kept() -> None:
    resolver = StubResolver([PUBLIC])
    kept = pins(resolver)
    for n in range(1100):
        await kept.find(parse_target(f"http://h{n}.example/"))

    assert kept.known(parse_target("http://h0.example/")) is None
    assert kept.known(parse_target("http://h1099.example/"))


async def test_a_host_that_cannot_be_found_is_not_kept() -> None:
    kept = pins(StubResolver([], [PUBLIC]))
    with pytest.raises(ToolConnectionError):
        await kept.find(TARGET)

    assert await kept.find(TARGET)
