"""Retries: only where they are safe, never more than the budget allows."""

import asyncio
import errno
import socket

import pytest

from tests.life_of_a_call.conftest import MakeBox
from tests.wire.site import Site
from toolpost import EventCode, Failed, ToolContext, tool
from toolpost.errors import (
    ToolAuthError,
    ToolCircuitOpenError,
    ToolConnectionError,
    ToolRateLimitError,
    ToolServerError,
    ToolTimeoutError,
)

ANN = "acme:ann"


@pytest.mark.req("TEST-11", "GEN-04")
async def test_a_read_that_fails_for_a_moment_is_tried_again(make_box: MakeBox) -> None:
    tries: list[int] = []

    @tool(side_effects="read")
    async def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ToolServerError("busy", status_code=503)
        return len(tries)

    async with make_box(flaky) as box:
        outcome = await box.call("flaky", user=ANN)
        told = [event.code for event in await box.events(user=ANN, run_id=outcome.run_id)]
    assert outcome.content == 3
    assert told.count(EventCode.CALL_RETRIED) == 2
    assert told.count(EventCode.TOOL_CALL_STARTED) == 1


@pytest.mark.parametrize(
    ("side_effects", "error", "tries"),
    [
        ("write", ToolServerError("busy", status_code=503), 1),
        ("write", ToolConnectionError("it broke"), 1),
        ("write", ToolConnectionError("never sent", sent=False), 3),
        ("read", ToolConnectionError("it broke"), 3),
        ("read", ToolServerError("odd", status_code=501), 1),
        ("read", ToolAuthError("who are you", status_code=401), 1),
        ("read", ConnectionResetError("by peer"), 3),
        ("write", ConnectionResetError("by peer"), 1),
        ("read", OSError(errno.EHOSTUNREACH, "no route to host"), 3),
        ("read", TimeoutError("late"), 3),
        ("read", FileNotFoundError(errno.ENOENT, "no such file", "x"), 1),
        ("read", OSError(errno.ENOSPC, "no space left on device"), 1),
        ("read", ValueError("a bug"), 1),
    ],
)
@pytest.mark.req("TEST-11", "RES-02")
async def test_a_call_is_repeated_only_where_that_helps_and_does_no_harm(
    make_box: MakeBox, side_effects: str, error: Exception, tries: int
) -> None:
    count = 0

    @tool(side_effects=side_effects)  # type: ignore[call-overload]
    async def failing() -> None:
        nonlocal count
        count += 1
        raise error

    async with make_box(failing) as box:
        outcome = await box.call("failing")
    assert outcome.status == "failed"
    assert count == tries


@pytest.mark.req("RES-02", "TEST-02")
async def test_a_call_that_was_cancelled_is_not_tried_again(make_box: MakeBox) -> None:
    tries, begun = 0, asyncio.Event()

    @tool(side_effects="read")
    async def wait() -> None:
        nonlocal tries
        tries += 1
        begun.set()
        await asyncio.Event().wait()

    async with make_box(wait) as box:
        calling = asyncio.create_task(box.call("wait"))
        await begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert tries == 1


async def test_a_keyed_call_is_repeated_with_the_same_key(make_box: MakeBox) -> None:
    keys: list[str | None] = []

    @tool(side_effects="external", replay="keyed", destructive=False)
    async def pay(ctx: ToolContext) -> str:
        keys.append(ctx.idempotency_key)
        if len(keys) == 1:
            raise ToolServerError("busy", status_code=503)
        return "paid"

    async with make_box(pay) as box:
        outcome = await box.call("pay", idempotency_key="order-7")
    assert outcome.content == "paid"
    assert keys == ["order-7", "order-7"]


@pytest.mark.req("ERR-06")
async def test_a_retry_after_beyond_the_deadline_is_not_waited_for(make_box: MakeBox) -> None:
    @tool(side_effects="read")
    async def limited() -> None:
        raise ToolRateLimitError("slow down", status_code=429, retry_after_s=3600)

    async with make_box(limited) as box:
        outcome = await box.call("limited")
    assert outcome.error.retry_after_seconds == 3600


@pytest.mark.req("GEN-04")
async def test_a_source_that_keeps_failing_is_left_alone_for_a_while(make_box: MakeBox) -> None:
    count = 0

    @tool(side_effects="write")
    async def down() -> None:
        nonlocal count
        count += 1
        raise ToolServerError("down", status_code=503)

    async with make_box(down) as box:
        for _ in range(5):
            await box.call("down", user=ANN)
        refused = await box.call("down", user=ANN)
        told = await box.store.events.read(run_id="source_down")
    assert count == 5
    assert isinstance(refused.error, ToolCircuitOpenError)
    assert "the next one is admitted in" in str(refused.error)
    assert [event.code for event in told] == [EventCode.BREAKER_OPENED]


async def test_refused_credentials_do_not_open_the_breaker_for_everyone(make_box: MakeBox) -> None:
    @tool(side_effects="write")
    async def locked() -> None:
        raise ToolAuthError("no", status_code=403)

    async with make_box(locked) as box:
        codes = {(await box.call("locked")).error.error_code for _ in range(8)}
    assert codes == {"auth_required"}


@pytest.mark.waits
async def test_a_dead_host_opens_the_breaker_for_that_host_and_that_tenant_alone(make_box: MakeBox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    async with (
        Site() as good,
        make_box(builtins=["http_get"], network={"allow_private": True, "allow_ip_literals": True}) as box,
    ):
        first = [await box.call("http_get", {"url": dead}, user="evil:eve") for _ in range(2)]
        again = await box.call("http_get", {"url": dead}, user="evil:eve")
        elsewhere = await box.call("http_get", {"url": good.url}, user="evil:eve")
        by_another = await box.call("http_get", {"url": dead}, user=ANN)
        told = [event.payload["source"] for event in await box.events(user="evil:eve") if not event.call_id]
        told_others = [event for event in await box.events(user=ANN) if not event.call_id]
    assert first[0].error.error_code == "connection_failed"
    assert again.error.error_code == "circuit_open"
    assert elsewhere.status == "completed"
    assert by_another.error.error_code == "connection_failed"
    assert told == [f"http_get to {dead[7:-1]}"]
    assert told_others == []


@pytest.mark.waits
async def test_retries_to_a_dead_host_do_not_use_up_those_of_other_hosts(make_box: MakeBox) -> None:
    tries: list[str] = []

    @tool(side_effects="read", host_argument="url")
    async def fetch(url: str) -> None:
        tries.append(url)
        raise ToolRateLimitError("slow down", status_code=429, retry_after_s=0.001)

    async with make_box(fetch, limits={"retry_budget": 0}) as box:
        for _ in range(8):
            await box.call("fetch", {"url": "http://busy.example/"})
        await box.call("fetch", {"url": "http://other.example/"})
    assert tries.count("http://busy.example/") == 18
    assert tries.count("http://other.example/") == 3


@pytest.mark.waits
async def test_a_try_that_timed_out_is_repeated_only_when_there_is_time_for_another(make_box: MakeBox) -> None:
    tries = 0

    @tool(side_effects="read", timeout_s=1.0)
    async def slow() -> None:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0.7)
        raise ToolTimeoutError("no answer within 0.7 s")

    async with make_box(slow) as box:
        outcome = await box.call("slow")
    assert tries == 1
    assert outcome.error.message == "no answer within 0.7 s"


async def test_a_report_about_a_source_is_an_event_and_no_run(make_box: MakeBox) -> None:
    @tool(side_effects="write")
    async def broken() -> None:
        raise ToolServerError("down", status_code=503)

    async with make_box(broken) as box:
        called = [(await box.call("broken")).run_id for _ in range(5)]
        listed = [run.run_id for run in await box.runs()]
        told = [event.code for event in await box.events(run_id="source_broken")]
    assert listed == called[::-1]
    assert told == [EventCode.BREAKER_OPENED]


@pytest.mark.waits
async def test_an_outage_is_not_made_worse_by_retries(make_box: MakeBox) -> None:
    count = 0

    @tool(side_effects="read", idempotent=True)
    async def limited() -> None:
        nonlocal count
        count += 1
        raise ToolRateLimitError("slow down", status_code=429, retry_after_s=0.001)

    async with make_box(limited, limits={"retry_budget": 0.1}) as box:
        for _ in range(50):
            await box.call("limited")
    assert 50 < count <= 60


async def test_an_unsafe_call_is_not_retried_after_the_failure_of_its_second_nested_call(make_box: MakeBox) -> None:
    paid: list[int] = []
    asked: list[int] = []

    @tool(side_effects="external")
    async def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    @tool(side_effects="external")
    async def ship(amount: int) -> str:
        asked.append(amount)
        raise ToolConnectionError("no route", sent=False)

    @tool(side_effects="external")
    async def order(amount: int, ctx: ToolContext) -> str:
        await ctx.call("pay", {"amount": amount})
        shipped = await ctx.call("ship", {"amount": amount})
        if isinstance(shipped, Failed):
            raise shipped.error
        return "ordered"

    async with make_box(pay, ship, order) as box:
        outcome = await box.call("order", {"amount": 5}, user=ANN)

    assert paid == [5]
    assert len(asked) == 3  # nothing was sent, so the nested call itself is retried
    assert isinstance(outcome, Failed)
    assert not outcome.error.is_retryable
