"""Listeners of the event feed that are busy with an event while something else happens."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toolpost import Settings, Toolbox, ToolContext, tool
from toolpost.gateway.event_feed import EventFeed


@tool(side_effects="pure")
async def count_to(n: int, ctx: ToolContext) -> int:
    """Count."""
    for number in range(n):
        ctx.progress(f"{number}")
    return n


@pytest.fixture
async def feed() -> EventFeed:
    return EventFeed()


@pytest.fixture
async def box(tmp_path: Path, feed: EventFeed) -> AsyncIterator[Toolbox]:
    opened = Toolbox(tools=[count_to], settings=Settings(data_dir=tmp_path / "data"))
    async with opened as box, feed.following(box.store.events):
        yield box


async def test_a_listener_that_is_busy_when_the_feed_closes_is_let_go_at_once(box: Toolbox, feed: EventFeed) -> None:
    events = feed.listen(tenant="acme", wanted=lambda _event: True)
    assert await anext(events) is None  # it listens
    await box.call("count_to", {"n": 0}, user="acme:ann")
    first = await anext(events)

    feed.close()
    rest = [event async for event in events]

    assert first is not None
    assert None not in rest  # which comes after a while without events


async def test_a_listener_that_falls_far_behind_continues_without_waiting_for_more(
    box: Toolbox, feed: EventFeed
) -> None:
    events, others = (feed.listen(tenant="acme", wanted=lambda _event: True) for _ in range(2))
    assert await anext(events) is await anext(others) is None
    await box.call("count_to", {"n": 0}, user="acme:ann")
    first = await anext(events)
    await box.call("count_to", {"n": 6000}, user="acme:ann")
    told = [await anext(others) for _ in range(6006)]

    assert [first, *[await anext(events) for _ in range(6005)]] == told
