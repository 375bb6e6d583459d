"""The tests of every adapter, with the real package of its framework and a scripted model."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.adapters.frameworks.driver import Call, Driver
from tests.adapters.frameworks.shelf import LARGE, Shelf, toolbox
from tests.parts import ROOT
from toolpost import Completed, Toolbox

ANN, BO, BOSS = "acme:ann", "acme:bo", "acme:boss"


async def eventually(box: Toolbox, count: int) -> list[str]:
    """Return the ids of the actions that wait, when there are as many."""
    while len(waiting := await box.pending.list(by=BOSS)) < count:
        await asyncio.sleep(0)
    return [action.id for action in waiting]


def approve_elsewhere(data: Path, pending_id: str) -> str:
    """Approve a call in another process, which makes it; return the result and the number of effects there."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.adapters.frameworks.approver", str(data), pending_id, BOSS],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


class AdapterTests:
    """Tests of an adapter; a subclass defines the fixture `driver`."""

    @pytest.fixture
    def shelf(self) -> Shelf:
        return Shelf()

    @pytest.fixture
    async def box(self, shelf: Shelf) -> AsyncIterator[Toolbox]:
        async with toolbox(shelf) as box:
            yield box

    async def test_a_call_has_the_result_of_the_toolbox(self, driver: Driver, box: Toolbox) -> None:
        run = await driver.run(box, [Call("ok_1", "add", {"a": 2, "b": 3})])

        assert (run.results["ok_1"].text, run.results["ok_1"].failed) == ("5", False)
        assert (run.answer, run.waiting) == ("done", [])
        if driver.has_data:
            assert (run.results["ok_1"].data or {})["content"] == 5

    async def test_a_failed_call_is_a_failure_of_the_framework(self, driver: Driver, box: Toolbox) -> None:
        run = await driver.run(box, [Call("bad_1", "fail")])

        assert run.results["bad_1"].failed
        assert "no luck today" in run.results["bad_1"].text
        assert run.answer == "done"

    async def test_wrong_arguments_are_a_failure_that_names_them(self, driver: Driver, box: Toolbox) -> None:
        run = await driver.run(box, [Call("bad_2", "add", {"a": "two", "b": 3})])

        assert run.results["bad_2"].failed
        assert "$.a" in run.results["bad_2"].text

    async def test_arguments_that_are_a_broken_text_are_a_failure(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        run = await driver.run(box, [Call("bad_3", "add", '{"a": 2, ')])
        if run.answer is None:  # the framework asked what to do with them, and no pending action waits
            run = await driver.resume(run)

        assert run.results["bad_3"].failed
        assert shelf.added == []

    async def test_a_large_result_is_an_artifact_beside_a_preview(self, driver: Driver, box: Toolbox) -> None:
        run = await driver.run(box, [Call("big_1", "large")])

        assert len(run.results["big_1"].text) < LARGE
        assert "art_" in run.results["big_1"].text
        if driver.has_data:
            (artifact,) = (run.results["big_1"].data or {})["artifacts"]
            assert artifact in run.results["big_1"].text

    async def test_untrusted_content_keeps_its_label(self, driver: Driver, box: Toolbox) -> None:
        run = await driver.run(box, [Call("page_1", "page")])

        assert 'trust="untrusted"' in run.results["page_1"].text
        if driver.has_data:
            assert (run.results["page_1"].data or {})["meta"]["trust"] == "untrusted"

    async def test_names_that_providers_reject_are_mapped_back(self, driver: Driver, box: Toolbox) -> None:
        from toolpost.schema.provider_view import fit_schema  # noqa: PLC0415 - the alias is not stable text

        (alias,) = fit_schema(box.registry.find("order").spec.input_schema).schema["properties"]
        run = await driver.run(box, [Call("name_1", "order", {alias: "age"})])

        assert run.results["name_1"].text == "ordered by age"

    async def test_calls_of_one_message_run_concurrently(self, driver: Driver, box: Toolbox) -> None:
        async with asyncio.timeout(30):
            run = await driver.run(box, [Call(f"par_{n}", "meet", {"name": n}) for n in ("ann", "bo", "cy")])

        assert [result.text for result in run.results.values()] == ["ann met two", "bo met two", "cy met two"]

    async def test_a_waiting_call_is_one_pending_action_and_continues_after_an_approval(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        run = await driver.run(box, [Call("wipe_1", "wipe", {"disk": "sda"})], user=ANN)
        (waiting,) = await box.pending.list(by=BOSS)
        assert (run.waiting, run.answer, shelf.wiped) == ([waiting.id], None, [])

        approved = await box.approve(waiting.id, by=BOSS)
        run = await driver.resume(run)

        assert isinstance(approved, Completed)
        assert (run.results["wipe_1"].text, run.results["wipe_1"].failed) == ("sda is empty", False)
        assert (run.answer, shelf.wiped) == ("done", [("sda", ANN)])

    @pytest.mark.programs
    async def test_a_call_that_another_process_approves_continues_with_its_result(
        self, driver: Driver, shelf: Shelf, tmp_path: Path
    ) -> None:
        async with toolbox(shelf, tmp_path) as box:
            run = await driver.run(box, [Call("wipe_9", "wipe", {"disk": "sda"})], user=ANN)
            approved = await asyncio.to_thread(approve_elsewhere, tmp_path, run.waiting[0])
            run = await driver.resume(run)

            assert approved == "sda is empty 1\n"
            assert (run.results["wipe_9"].text, run.results["wipe_9"].failed) == ("sda is empty", False)
            assert (run.answer, shelf.wiped) == ("done", [])

    async def test_a_run_that_is_resumed_before_the_answer_waits_again(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        run = await driver.run(box, [Call("wipe_2", "wipe", {"disk": "sda"})], user=ANN)

        again = await driver.resume(run)

        assert (again.waiting, again.answer, shelf.wiped) == (run.waiting, None, [])
        await box.approve(run.waiting[0], by=BOSS)
        assert (await driver.resume(again)).answer == "done"
        assert shelf.wiped == [("sda", ANN)]

    async def test_a_denied_call_is_a_failure_with_the_reason(self, driver: Driver, box: Toolbox, shelf: Shelf) -> None:
        run = await driver.run(box, [Call("wipe_3", "wipe", {"disk": "sda"})], user=ANN)
        await box.deny(run.waiting[0], by=BOSS, reason="not today")

        run = await driver.resume(run)

        assert run.results["wipe_3"].failed
        assert "not today" in run.results["wipe_3"].text
        assert (run.answer, shelf.wiped) == ("done", [])

    async def test_a_run_that_is_resumed_twice_has_its_effect_once(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        waiting = await driver.run(box, [Call("wipe_4", "wipe", {"disk": "sda"})], user=ANN)
        await box.approve(waiting.waiting[0], by=BOSS)

        first = await driver.resume(waiting)
        second = await driver.resume(waiting)

        assert (first.answer, second.answer) == ("done", "done")
        assert shelf.wiped == [("sda", ANN)]

    async def test_two_waiting_calls_are_answered_in_any_order(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        calls = [Call("wipe_5", "wipe", {"disk": "sda"}), Call("wipe_6", "wipe", {"disk": "sdb"})]
        run = await driver.run(box, [*calls, Call("ok_2", "add", {"a": 1, "b": 1})], user=ANN)
        async with asyncio.timeout(30):
            await eventually(box, 2)
        by_disk = {one.arguments["disk"]: one.id for one in await box.pending.list(by=BOSS)}

        await box.approve(by_disk["sdb"], by=BOSS)
        run = await driver.resume(run)
        assert (run.waiting, run.answer) == ([by_disk["sda"]], None)
        await box.approve(by_disk["sda"], by=BOSS)
        run = await driver.resume(run)

        assert [run.results[call.id].text for call in calls] == ["sda is empty", "sdb is empty"]
        assert (run.results["ok_2"].text, run.answer) == ("2", "done")
        assert shelf.wiped == [("sdb", ANN), ("sda", ANN)]

    async def test_an_approval_for_a_run_that_is_gone_runs_the_call_once(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        run = await driver.run(box, [Call("wipe_7", "wipe", {"disk": "sda"})], user=ANN)
        waiting = list(run.waiting)
        del run

        await box.approve(waiting[0], by=BOSS)
        other = await driver.run(box, [Call("wipe_8", "wipe", {"disk": "sda"})], user=ANN)

        assert shelf.wiped == [("sda", ANN)]
        assert len(other.waiting) == 1
        assert list(other.waiting) != waiting

    async def test_a_run_calls_as_its_user(self, driver: Driver, box: Toolbox, shelf: Shelf) -> None:
        for number, user in enumerate((ANN, BO)):
            run = await driver.run(box, [Call(f"user_{number}", "wipe", {"disk": "sda"})], user=user)
            await box.approve(run.waiting[0], by=BOSS)

        assert shelf.wiped == [("sda", ANN), ("sda", BO)]
        assert {one.asked_by.user for one in await box.pending.list(by=BOSS, status=None)} == {"ann", "bo"}
        assert await box.pending.list(by="other:boss", status=None) == []

    async def test_a_cancelled_run_stops_its_call(self, driver: Driver, box: Toolbox, shelf: Shelf) -> None:
        running = asyncio.create_task(driver.run(box, [Call("slow_1", "wait")]))
        async with asyncio.timeout(30):
            await shelf.started.wait()

        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

        assert running.cancelled()
        async with asyncio.timeout(30):
            await shelf.stopped.wait()

    async def test_a_tool_that_disappears_after_the_listing_is_a_failure(self, driver: Driver, box: Toolbox) -> None:
        run = await driver.run(box, [Call("gone_1", "wipe", {"disk": "sda"})], user=ANN)
        box.registry.unregister("wipe")
        await box.deny(run.waiting[0], by=BOSS)

        run = await driver.resume(run)

        assert run.results["gone_1"].failed
        assert run.answer == "done"

    async def test_a_run_in_another_thread_and_loop_calls_the_toolbox(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        calls = [Call("far_1", "wipe", {"disk": "sda"})]
        run = await asyncio.to_thread(lambda: asyncio.run(driver.run(box, calls, user=ANN)))
        waiting = run
        await box.approve(run.waiting[0], by=BOSS)
        run = await asyncio.to_thread(lambda: asyncio.run(driver.resume(waiting)))

        assert run.results["far_1"].text == "sda is empty"
        assert shelf.wiped == [("sda", ANN)]
