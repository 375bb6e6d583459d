"""The tests of adapters whose calls wait in the run of the framework, which has no interrupt for tools."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest

from tests.adapters.frameworks.driver import Call, Driver, Result, Run
from tests.adapters.frameworks.shelf import Shelf, toolbox
from tests.adapters.frameworks.suite import ANN, BOSS, AdapterTests, eventually
from toolpost import Completed, Toolbox


class Ended:
    """The results of an agent by call id, as they come, and its last text."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.results: dict[str, Result] = {call.id: Result("", failed=False) for call in calls}
        self.answer: str | None = None


class WaitingDriver(ABC):
    """Runs agents whose runs last until their calls are answered."""

    has_data = False

    def __init__(self) -> None:
        self._running: list[asyncio.Task[None]] = []

    @abstractmethod
    def agent(
        self, box: Toolbox, calls: Sequence[Call], ended: Ended, *, user: str | None, wait_s: float
    ) -> Coroutine[Any, Any, None]:
        """Run an agent to its end."""
        ...

    async def whole(
        self, box: Toolbox, calls: Sequence[Call], *, user: str | None = None, wait_s: float = 60.0
    ) -> Mapping[str, Result]:
        """Run an agent to its end, and return the results."""
        ended = Ended(calls)
        await self.agent(box, calls, ended, user=user, wait_s=wait_s)
        assert ended.answer == "done"
        return ended.results

    async def run(self, box: Toolbox, calls: Sequence[Call], *, user: str | None = None) -> Run:
        ended = Ended(calls)
        running = asyncio.create_task(self.agent(box, calls, ended, user=user, wait_s=60.0))
        self._running.append(running)
        try:
            return await self._until(box, running, ended, sum(call.name == "wipe" for call in calls))
        except asyncio.CancelledError:
            running.cancel()
            raise

    async def resume(self, run: Run) -> Run:
        box, running, ended = run.state
        return await self._until(box, running, ended, len(await box.pending.list(by=BOSS)))

    async def stop(self) -> None:
        """Cancel the runs that still wait."""
        for running in self._running:
            running.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _until(self, box: Toolbox, running: asyncio.Task[None], ended: Ended, count: int) -> Run:
        """Return the run when it ends, or when so many of its calls wait that nothing else goes on."""
        while not running.done():
            waiting = await box.pending.list(by=BOSS)
            if count and len(waiting) == count and not len(box.router.inflight):
                return Run(ended.results, [action.id for action in waiting], None, (box, running, ended))
            await asyncio.sleep(0)
        await running
        return Run(ended.results, [], ended.answer, (box, running, ended))


class WaitingAdapterTests(AdapterTests):
    """Tests of an adapter; a subclass defines the fixture `driver`, which stops its runs at the end."""

    @abstractmethod
    def new_driver(self) -> WaitingDriver: ...

    @pytest.fixture
    async def driver(self) -> AsyncIterator[WaitingDriver]:
        driver = self.new_driver()
        yield driver
        await driver.stop()

    async def test_an_approval_for_a_run_that_is_gone_runs_the_call_once(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        assert isinstance(driver, WaitingDriver)
        run = await driver.run(box, [Call("wipe_7", "wipe", {"disk": "sda"})], user=ANN)
        await driver.stop()

        approved = await box.approve(run.waiting[0], by=BOSS)
        other = await driver.run(box, [Call("wipe_8", "wipe", {"disk": "sda"})], user=ANN)

        assert isinstance(approved, Completed)
        assert shelf.wiped == [("sda", ANN)]
        assert len(other.waiting) == 1
        assert list(other.waiting) != list(run.waiting)

    async def test_a_run_in_another_thread_and_loop_calls_the_toolbox(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        assert isinstance(driver, WaitingDriver)
        calls = [Call("far_1", "wipe", {"disk": "sda"})]
        running = asyncio.create_task(in_a_thread(lambda: driver.whole(box, calls, user=ANN)))
        (waiting,) = await eventually(box, 1)
        await box.approve(waiting, by=BOSS)

        assert (await running)["far_1"].text == "sda is empty"
        assert shelf.wiped == [("sda", ANN)]

    async def test_a_call_without_an_answer_in_time_fails_and_continues_when_it_is_repeated(
        self, driver: WaitingDriver, box: Toolbox, shelf: Shelf
    ) -> None:
        calls = [Call("late_1", "wipe", {"disk": "sda"})]
        late = await driver.whole(box, calls, user=ANN, wait_s=0.01)
        (waiting,) = await box.pending.list(by=BOSS)
        assert late["late_1"].failed
        assert waiting.id in late["late_1"].text
        assert "again with the same arguments" in late["late_1"].text

        await box.approve(waiting.id, by=BOSS)
        repeated = await driver.whole(box, [Call("late_2", "wipe", {"disk": "sda"})], user=ANN, wait_s=0.01)
        again = await driver.whole(box, [Call("late_3", "wipe", {"disk": "sda"})], user=ANN, wait_s=0.01)

        assert (repeated["late_2"].text, repeated["late_2"].failed) == ("sda is empty", False)
        assert again["late_3"].failed
        assert shelf.wiped == [("sda", ANN)]


class ThreadAdapterTests(WaitingAdapterTests):
    """Tests of an adapter whose framework calls tools from threads, which nothing can cancel."""

    @abstractmethod
    async def call_in_this_thread(self, box: Toolbox) -> None: ...

    async def test_a_cancelled_run_stops_its_call(self, driver: Driver, box: Toolbox, shelf: Shelf) -> None:
        async with toolbox(shelf) as closing:
            running = asyncio.create_task(driver.run(closing, [Call("slow_1", "wait")]))
            async with asyncio.timeout(30):
                await shelf.started.wait()
            running.cancel()  # which leaves the thread of the agent running, until the Toolbox is closed

        async with asyncio.timeout(30):
            await shelf.stopped.wait()

    async def test_a_call_in_the_event_loop_of_the_toolbox_is_refused(self, box: Toolbox) -> None:
        with pytest.raises(RuntimeError, match="must not be blocked"):
            await self.call_in_this_thread(box)


async def in_a_thread(run: Callable[[], Coroutine[Any, Any, Mapping[str, Result]]]) -> Mapping[str, Result]:
    """Run a coroutine in an event loop of its own."""
    return await asyncio.to_thread(lambda: asyncio.run(run()))
