"""Idempotency keys: the same key, the same answer, one run."""

import asyncio

import pytest

from tests.life_of_a_call.conftest import MakeBox
from toolpost import tool
from toolpost.errors import ToolConflictError, ToolExecutionError

ANN = "acme:ann"


async def test_the_same_key_gives_the_same_answer_and_runs_once(make_box: MakeBox) -> None:
    runs: list[int] = []

    @tool(side_effects="write")
    async def pay(amount: int, note: str = "") -> str:
        runs.append(amount)
        return f"receipt {len(runs)}"

    async with make_box(pay) as box:
        first = await box.call("pay", {"amount": 5, "note": "x"}, user=ANN, idempotency_key="k1")
        again = await box.call("pay", {"note": "x", "amount": 5}, user=ANN, idempotency_key="k1")
        other_person = await box.call("pay", {"amount": 5, "note": "x"}, user="acme:bob", idempotency_key="k1")
    assert again.content == first.content == "receipt 1"
    assert again.call_id == first.call_id
    assert other_person.content == "receipt 2"


async def test_a_key_used_with_other_arguments_is_refused(make_box: MakeBox) -> None:
    @tool(side_effects="write")
    async def pay(amount: int) -> int:
        return amount

    async with make_box(pay) as box:
        await box.call("pay", {"amount": 5}, user=ANN, idempotency_key="k1")
        refused = await box.call("pay", {"amount": 6}, user=ANN, idempotency_key="k1")
    assert isinstance(refused.error, ToolConflictError)
    assert "use a new key" in str(refused.error)


async def test_a_failure_after_the_call_began_is_the_answer_too(make_box: MakeBox) -> None:
    runs: list[int] = []

    @tool(side_effects="write")
    async def pay() -> None:
        runs.append(1)
        raise ValueError("declined")

    async with make_box(pay) as box:
        first = await box.call("pay", user=ANN, idempotency_key="k1")
        again = await box.call("pay", user=ANN, idempotency_key="k1")
    assert isinstance(again.error, ToolExecutionError)
    assert str(again.error) == str(first.error) == "ValueError: declined"
    assert runs == [1]


async def test_a_call_that_never_began_frees_its_key(make_box: MakeBox) -> None:
    @tool(side_effects="write")
    async def pay(amount: int) -> int:
        return amount

    async with make_box(pay) as box:
        refused = await box.call("pay", {"amount": "5"}, user=ANN, idempotency_key="k1")
        done = await box.call("pay", {"amount": 5}, user=ANN, idempotency_key="k1")
    assert refused.error.error_code == "validation_failed"
    assert done.content == 5


async def test_a_key_in_use_is_reported_as_in_progress(make_box: MakeBox) -> None:
    go, started = asyncio.Event(), asyncio.Event()

    @tool(side_effects="write")
    async def pay() -> str:
        started.set()
        await go.wait()
        return "paid"

    async with make_box(pay) as box:
        first = asyncio.create_task(box.call("pay", user=ANN, idempotency_key="k1"))
        await started.wait()
        second = await box.call("pay", user=ANN, idempotency_key="k1")
        go.set()
        assert (await first).content == "paid"
        third = await box.call("pay", user=ANN, idempotency_key="k1")
    assert second.error.error_code == "in_progress"
    assert third.content == "paid"


async def test_a_key_follows_its_call_through_a_question(make_box: MakeBox) -> None:
    @tool(side_effects="write", destructive=True)
    async def drop() -> str:
        return "dropped"

    async with make_box(drop) as box:
        paused = await box.call("drop", user=ANN, idempotency_key="k1")
        still = await box.call("drop", user=ANN, idempotency_key="k1")
        assert still.pending_id == paused.pending_id
        assert len(await box.pending.list(by=ANN)) == 1
        await box.approve(paused.pending_id, by=ANN)
        done = await box.call("drop", user=ANN, idempotency_key="k1")
    assert done.content == "dropped"


async def test_keys_outlive_the_process(disk_box: MakeBox) -> None:
    runs: list[int] = []

    @tool(side_effects="write")
    async def pay() -> int:
        runs.append(1)
        return len(runs)

    async with disk_box(pay) as box:
        await box.call("pay", user=ANN, idempotency_key="k1")
    async with disk_box(pay) as box:
        again = await box.call("pay", user=ANN, idempotency_key="k1")
    assert again.content == 1
    assert runs == [1]


@pytest.mark.parametrize("content", [None, {"a": [1, None]}, "text", [1.5]])
async def test_a_kept_answer_is_the_very_content(disk_box: MakeBox, content: object) -> None:
    @tool(side_effects="write", output_schema={})
    async def give() -> object:
        return content

    async with disk_box(give) as box:
        await box.call("give", user=ANN, idempotency_key="k1")
        assert (await box.call("give", user=ANN, idempotency_key="k1")).content == content
