"""The bus: who hears of what, in which order, and what caused it."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from toolpost import EventBus, EventCode
from toolpost.contracts.events import CallRef, RunEvent


def event(code: EventCode, number: int = 0, *, priority: int | None = None) -> RunEvent:
    call = CallRef("run_1", "", "", "acme", "ann", "", _plain)
    return RunEvent(code, 1.0, call, {"number": number}, own_priority=priority)


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    return dict(facts)


async def test_events_that_wait_are_delivered_by_priority_and_equal_ones_in_order() -> None:
    bus = EventBus(keep_history=True)
    async with bus:
        bus.emit(event(EventCode.TOOL_CALL_COMPLETED))
        bus.emit(event(EventCode.TASK_COMPLETED, 1))
        bus.emit(event(EventCode.TASK_COMPLETED, 2))
        bus.emit(event(EventCode.MESSAGE_RECEIVED))
        bus.emit(event(EventCode.TOOL_CALL_FAILED, priority=1))
        assert bus.history == []

    assert [int(one.code) for one in bus.history] == [420, 100, 240, 240, 410]
    assert [one.facts["number"] for one in bus.history if one.code == EventCode.TASK_COMPLETED] == [1, 2]


async def test_without_a_queue_an_event_is_delivered_at_once() -> None:
    bus, heard = EventBus(), list[RunEvent]()
    bus.subscribe(EventCode.TASK_CREATED, heard.append)

    bus.emit(event(EventCode.TASK_CREATED))

    assert [one.code for one in heard] == [EventCode.TASK_CREATED]


async def test_events_of_other_threads_are_delivered_on_the_event_loop() -> None:
    bus, delivered = EventBus(), asyncio.Event()

    def hear(_: RunEvent) -> None:
        asyncio.get_running_loop()  # RuntimeError in a thread without one
        delivered.set()

    bus.subscribe(None, hear)
    async with bus:
        await asyncio.to_thread(bus.emit, event(EventCode.TASK_CREATED))
        await asyncio.wait_for(delivered.wait(), 5)


async def test_what_a_subscriber_emits_is_delivered_too() -> None:
    bus = EventBus(keep_history=True)
    bus.subscribe(EventCode.TASK_CREATED, lambda one: bus.emit(one.derive(EventCode.TASK_STARTED, {})))
    async with bus:
        bus.emit(event(EventCode.TASK_CREATED))

    created, started = bus.history
    assert started.parent_event_id == created.id


async def test_a_coroutine_may_subscribe_and_its_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    bus, heard = EventBus(), asyncio.Event()

    async def hear(_: RunEvent) -> None:
        heard.set()
        raise RuntimeError("not listening")

    bus.subscribe(None, hear)
    with caplog.at_level(logging.ERROR, logger="toolpost.events"):
        async with bus:
            bus.emit(event(EventCode.TASK_CREATED))
    assert heard.is_set()
    assert "an event subscriber failed on TASK_CREATED" in caplog.text


def test_an_event_knows_what_caused_it() -> None:
    call = CallRef("run_1", "call_1", "add", "acme", "ann", "event_7", _plain)
    requested = RunEvent(EventCode.TOOL_CALL_REQUESTED, 1.0, call, {})
    completed = RunEvent(EventCode.TOOL_CALL_COMPLETED, 2.0, call, {})
    derived = completed.derive(EventCode.TASK_COMPLETED, {}, priority=7)

    assert (requested.parent_event_id, completed.parent_event_id) == ("event_7", requested.id)
    assert (derived.parent_event_id, derived.priority) == (completed.id, 7)
    assert len({requested.id, completed.id, derived.id}) == 3
    assert derived.call.run_id == "run_1"


def test_an_event_that_nothing_caused_says_so() -> None:
    alone = CallRef("run_1", "call_1", "add", "acme", "ann", "call_1", _plain)

    assert RunEvent(EventCode.TOOL_CALL_REQUESTED, 1.0, alone, {}).parent_event_id == ""
    assert event(EventCode.TASK_CREATED).parent_event_id == ""
