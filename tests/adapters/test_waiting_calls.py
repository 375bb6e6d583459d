"""Calls that wait in the run of a framework: answers, the end of the time, and repeated calls."""

import asyncio
import math
from collections.abc import AsyncIterator

import pytest

from tests.adapters.frameworks.shelf import Shelf, toolbox
from toolpost import Completed, Failed, Paused, Toolbox
from toolpost.adapters.framework_tools import FrameworkTool, FrameworkTools
from toolpost.adapters.waiting_calls import BlockingCalls, CallFailedError, text_or_error

ANN, BO, BOSS = "acme:ann", "acme:bo", "acme:boss"
LONG_S, SHORT_S = math.inf, 0.01


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
async def box(shelf: Shelf) -> AsyncIterator[Toolbox]:
    async with toolbox(shelf) as box:
        yield box


async def one(box: Toolbox, name: str, user: str = ANN) -> FrameworkTool:
    (tool,) = await FrameworkTools(box, user=user, only=[name]).read()
    return tool


async def asked(box: Toolbox) -> str:
    """Return the id of the action that waits, when nothing else goes on."""
    while not (waiting := await box.pending.list(by=BOSS)) or len(box.router.inflight):
        await asyncio.sleep(0)
    return waiting[0].id


async def test_a_call_that_does_not_wait_has_its_outcome(box: Toolbox) -> None:
    done = await BlockingCalls(LONG_S).call(await one(box, "add"), {"a": 1, "b": 2})

    assert text_or_error(done) == "3"


async def test_a_call_ends_when_a_person_has_answered(box: Toolbox, shelf: Shelf) -> None:
    calls, wipe = BlockingCalls(LONG_S), await one(box, "wipe")
    approved = asyncio.create_task(calls.call(wipe, {"disk": "sda"}))
    await box.approve(await asked(box), by=BOSS)
    assert isinstance(await approved, Completed)

    denied = asyncio.create_task(calls.call(wipe, {"disk": "sdb"}))
    await box.deny(await asked(box), by=BOSS, reason="not today")
    outcome = await denied

    assert isinstance(outcome, Failed)
    with pytest.raises(CallFailedError, match="not today"):
        text_or_error(outcome)
    assert shelf.wiped == [("sda", ANN)]


async def test_a_call_of_a_thread_waits_there(box: Toolbox, shelf: Shelf) -> None:
    calls, wipe = BlockingCalls(LONG_S), await one(box, "wipe")

    calling = asyncio.create_task(asyncio.to_thread(calls.block, wipe, {"disk": "sda"}))
    await box.approve(await asked(box), by=BOSS)

    assert isinstance(await calling, Completed)
    assert shelf.wiped == [("sda", ANN)]


async def test_a_call_without_an_answer_in_time_is_the_same_when_it_is_repeated(box: Toolbox, shelf: Shelf) -> None:
    calls, wipe = BlockingCalls(SHORT_S), await one(box, "wipe")
    first = await calls.call(wipe, {"disk": "sda"})
    second = await calls.call(wipe, {"disk": "sda"})
    assert isinstance(first, Paused)
    assert isinstance(second, Paused)
    assert second.pending_id == first.pending_id
    with pytest.raises(CallFailedError, match=first.pending_id):
        text_or_error(second)

    await box.approve(first.pending_id, by=BOSS)
    third = await calls.call(wipe, {"disk": "sda"})
    fourth = await calls.call(wipe, {"disk": "sda"})

    assert isinstance(third, Completed)
    assert isinstance(fourth, Paused)
    assert fourth.pending_id != first.pending_id
    assert shelf.wiped == [("sda", ANN)]


async def test_late_calls_of_other_users_and_with_other_arguments_are_other_calls(box: Toolbox) -> None:
    calls, ann, bo = BlockingCalls(SHORT_S), await one(box, "wipe"), await one(box, "wipe", BO)

    for tool, disk in ((ann, "sda"), (ann, "sdb"), (bo, "sda")):
        assert isinstance(await calls.call(tool, {"disk": disk}), Paused)

    assert len(await box.pending.list(by=BOSS)) == 3


async def test_a_cancelled_wait_leaves_the_question_open(box: Toolbox, shelf: Shelf) -> None:
    waiting = asyncio.create_task(BlockingCalls(LONG_S).call(await one(box, "wipe"), {"disk": "sda"}))
    pending_id = await asked(box)

    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await box.approve(pending_id, by=BOSS)

    assert shelf.wiped == [("sda", ANN)]
