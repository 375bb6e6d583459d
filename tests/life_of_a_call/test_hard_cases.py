"""What goes wrong at the same time: cancellation, deadlines, answers and secrets across each other."""

import asyncio
from typing import Any

import pytest

from tests.life_of_a_call.conftest import MakeBox
from toolpost import Completed, ExternalToolConfig, Failed, ToolContext, tool
from toolpost.contracts.errors import StoreError
from toolpost.contracts.outcomes import outcome_to_dict
from toolpost.contracts.questions import PendingAction
from toolpost.errors import ToolConflictError

ANN, BOB = "acme:ann", "acme:bob"


def ends(events: Any) -> list[int]:
    return [event.code.value for event in events if event.code.value in (400, 410, 420)]


async def test_a_key_is_not_freed_by_a_call_that_never_held_it(make_box: MakeBox) -> None:
    go, started, runs = asyncio.Event(), asyncio.Event(), list[int]()

    @tool(side_effects="write")
    async def pay(amount: int) -> int:
        runs.append(amount)
        started.set()
        await go.wait()
        return len(runs)

    async with make_box(pay) as box:
        first = asyncio.create_task(box.call("pay", {"amount": 1}, user=ANN, idempotency_key="K"))
        await started.wait()
        await box.call("pay", {"amount": "x"}, user=ANN, idempotency_key="K")
        third = await box.call("pay", {"amount": 1}, user=ANN, idempotency_key="K")
        go.set()
        await first
    assert third.error.error_code == "in_progress"
    assert runs == [1]


async def test_a_key_is_free_again_when_its_call_never_got_its_turn(make_box: MakeBox) -> None:
    go, started = asyncio.Event(), asyncio.Event()

    @tool(side_effects="write", max_concurrency=1)
    async def pay() -> str:
        started.set()
        await go.wait()
        return "paid"

    async with make_box(pay) as box:
        first = asyncio.create_task(box.call("pay", user=ANN))
        await started.wait()
        late = await box.call("pay", user=ANN, idempotency_key="K", timeout_s=0.02)
        go.set()
        await first
        again = await box.call("pay", user=ANN, idempotency_key="K")
    assert late.error.error_code == "timeout"
    assert again.content == "paid"


@pytest.mark.parametrize("run_id", [5, "\ud800", "läuft", "a\0b"])
async def test_an_odd_run_id_harms_no_one(make_box: MakeBox, run_id: Any) -> None:
    @tool(side_effects="write")
    async def work() -> str:
        return "done"

    async with make_box(work) as box:
        assert (await box.call("work", user=ANN, run_id=run_id)).status == "completed"
        assert (await box.call("work", user=ANN)).status == "completed"
        assert len(await box.runs(user=ANN)) == 2
        assert len(await box.events(user=ANN, run_id=run_id)) == 3
        assert (await box.run(run_id, user=ANN)).status == "completed"
        assert not await box.cancel(run_id, by=ANN)


async def test_half_a_character_harms_no_call_and_names_no_user(make_box: MakeBox) -> None:
    @tool(side_effects="write")
    async def save(ctx: ToolContext) -> str:
        return await ctx.save_artifact(b"x", media_type="text/plain", name="\ud800.txt")

    async with make_box(save) as box:
        done = await box.call("save", user=ANN)
        ref = await box.store.artifacts.info(done.content, tenant="acme")
        with pytest.raises(ValueError, match="not of the form 'tenant:user'"):
            await box.call("save", user="acme:\udcff")
    assert ref.name == "\\ud800.txt"


async def test_cancelling_a_run_stops_the_outer_tool_too(make_box: MakeBox) -> None:
    inside, went_on = asyncio.Event(), list[str]()

    @tool(side_effects="read")
    async def inner() -> None:
        inside.set()
        await asyncio.sleep(60)

    @tool(side_effects="read")
    async def outer(ctx: ToolContext) -> None:
        await ctx.call("inner")
        went_on.append("outer")
        await asyncio.sleep(60)

    async with make_box(inner, outer) as box:
        task = asyncio.create_task(box.call("outer", user=ANN, run_id="r"))
        await inside.wait()
        assert await box.cancel("r", by=ANN)
        outcome = await asyncio.wait_for(task, 30)
        told = await box.events(user=ANN, run_id="r")
    assert outcome.error.error_code == "cancelled"
    assert went_on == []
    assert ends(told) == [400, 400, 420, 420]


async def test_the_application_s_own_cancellation_is_never_lost(make_box: MakeBox) -> None:
    stopping = asyncio.Event()

    @tool(side_effects="pure", timeout_s=0.01)
    async def slow_to_stop() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopping.set()
            await asyncio.sleep(0.05)

    async with make_box(slow_to_stop) as box:
        task = asyncio.create_task(box.call("slow_to_stop"))
        await stopping.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.waits
async def test_a_surrounding_timeout_still_works_after_a_tool_was_stopped(make_box: MakeBox) -> None:
    @tool(side_effects="pure", timeout_s=0.01)
    async def swallows() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "late"
        return "never"

    async def call_and_go_on(box: Any) -> None:
        async with asyncio.timeout(1):
            await box.call("swallows")
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            await asyncio.sleep(60)

    async with make_box(swallows) as box:
        with pytest.raises(TimeoutError):
            await call_and_go_on(box)


async def test_a_tool_that_raises_cancelled_by_itself_fails_and_cancels_no_one(make_box: MakeBox) -> None:
    class Odd(BaseException):
        """Not an Exception."""

    @tool(side_effects="pure")
    async def odd(kind: str) -> None:
        raise asyncio.CancelledError("inner") if kind == "cancelled" else Odd("odd")

    async with make_box(odd) as box:
        outcomes = [await box.call("odd", {"kind": kind}, user=ANN) for kind in ("cancelled", "other")]
    assert [outcome.error.error_code for outcome in outcomes] == ["tool_raised", "tool_raised"]


async def test_an_answer_once_given_is_carried_out_even_if_no_one_stays(make_box: MakeBox) -> None:
    started, runs = asyncio.Event(), list[int]()

    @tool(side_effects="write", destructive=True)
    async def drop() -> str:
        runs.append(1)
        started.set()
        await asyncio.sleep(0.05)
        return "dropped"

    async with make_box(drop) as box:
        paused = await box.call("drop", user=ANN)
        answering = asyncio.create_task(box.approve(paused.pending_id, by=BOB))
        await started.wait()
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answering
        while (await box.pending.get(paused.pending_id, by=BOB)).status != "answered":
            await asyncio.sleep(0.01)
        with pytest.raises(ToolConflictError):
            await box.approve(paused.pending_id, by=BOB)
        told = await box.events(user=ANN, run_id=paused.run_id)
    assert runs == [1]
    assert ends(told) == [400, 410]


@pytest.mark.req("MISC-28")
async def test_a_secret_argument_does_not_come_back_in_an_error_a_result_or_a_question(make_box: MakeBox) -> None:
    canary = "canary-pa55word"

    @tool(side_effects="pure")
    async def login(password: str, how: str, ctx: ToolContext) -> str:
        ctx.progress(f"trying {password}")
        if how == "raise":
            raise ValueError(f"no such user with {password}")
        if how == "ask":
            return str(await ctx.pause("await_input", prompt=f"is {password} right?"))
        return f"token for {password}"

    async with make_box(login) as box:
        outcomes = [await box.call("login", {"password": canary, "how": how}, user=ANN) for how in ("raise", "ask", "")]
        told = [event.to_dict() for event in await box.events(user=ANN)]
    assert canary not in str(outcomes[0].error.to_dict())
    assert canary not in outcomes[1].question.prompt
    assert canary in outcomes[2].content
    assert canary not in str(told)


async def test_what_was_validated_is_what_runs(make_box: MakeBox) -> None:
    go = asyncio.Event()

    @tool(side_effects="read", max_concurrency=1)
    async def show(items: list[int], wait: bool = False) -> list[int]:
        if wait:
            await go.wait()
        return items

    async with make_box(show) as box:
        first = asyncio.create_task(box.call("show", {"items": [], "wait": True}))
        arguments: dict[str, Any] = {"items": [1]}
        second = asyncio.create_task(box.call("show", arguments))
        await asyncio.sleep(0)
        arguments["items"].append("evil")
        go.set()
        await first
        assert (await second).content == [1]


async def test_a_tool_that_changes_its_arguments_and_asks_is_resumed_with_the_original_ones(make_box: MakeBox) -> None:
    @tool(side_effects="write", destructive=True)
    async def collect(items: list[int], ctx: ToolContext) -> list[int]:
        items.append(9)
        await ctx.pause("await_input")
        return items

    async with make_box(collect) as box:
        asked = await box.call("collect", {"items": [1]}, user=ANN)
        paused = await box.approve(asked.pending_id, by=BOB)
        done = await box.answer(paused.pending_id, "go on", by=BOB)
    assert done.content == [1, 9]


async def test_a_waiting_call_can_be_cancelled_by_its_own_id_and_only_by_its_tenant(make_box: MakeBox) -> None:
    @tool(side_effects="write", destructive=True)
    async def drop() -> None: ...

    async with make_box(drop) as box:
        paused = await box.call("drop", user=ANN, run_id="s1")
        other = await box.call("drop", user="rival:eve", run_id="s2")
        assert not await box.cancel(paused.call_id, by="rival:eve")
        assert await box.cancel(paused.call_id, by=ANN)
        assert [action.id for action in await box.pending.list(by="rival:eve")] == [other.pending_id]
        assert await box.pending.list(by=ANN) == []


async def test_a_run_that_was_cancelled_can_be_used_again(disk_box: MakeBox) -> None:
    @tool(side_effects="read")
    async def look() -> str:
        await asyncio.sleep(0.5)
        return "seen"

    async with disk_box(look) as box:
        await box.store.cancels.request("r", tenant="acme", by=ANN)
        outcome = await box.call("look", user=ANN, run_id="r")
    assert outcome.status == "completed"


async def test_inner_calls_of_a_full_source_do_not_wait_for_their_outer_ones(make_box: MakeBox) -> None:
    @tool(name="inner", side_effects="read")
    async def inner() -> int:
        return 1

    @tool(name="outer", side_effects="read")
    async def outer(ctx: ToolContext) -> Any:
        await asyncio.sleep(0.01)
        return (await ctx.call("inner")).content  # type: ignore[union-attr]

    async with make_box() as box:
        config = ExternalToolConfig(name="api", transport="python", connection="x", max_concurrency=3)
        for each in (inner, outer):
            box.registry.register(each, config=config)
        outcomes = await asyncio.wait_for(box.call_many([("outer", {})] * 3), 30)
    assert [outcome.content for outcome in outcomes] == [1, 1, 1]


async def test_a_remembered_result_cannot_be_spoiled_by_who_gets_it(make_box: MakeBox) -> None:
    @tool(side_effects="pure", cache_ttl_s=60)
    async def listed() -> list[int]:
        return [1]

    async with make_box(listed) as box:
        for _ in range(3):
            outcome = await box.call("listed")
            assert outcome.content == [1]
            outcome.content.append("spoiled")


async def test_steps_of_once_take_turns_and_need_a_name(make_box: MakeBox) -> None:
    runs: list[int] = []

    @tool(side_effects="write")
    async def steps(key: str, ctx: ToolContext) -> list[Any]:
        async def step() -> int:
            runs.append(1)
            await asyncio.sleep(0.01)
            return len(runs)

        return list(await asyncio.gather(ctx.once(key, step), ctx.once(key, step)))

    async with make_box(steps) as box:
        done = await box.call("steps", {"key": "a"})
        refused = await box.call("steps", {"key": ""})
    assert done.content == [1, 1]
    assert "needs a key" in str(refused.error)


async def test_a_question_inside_a_step_does_not_make_the_step_unknown(make_box: MakeBox) -> None:
    @tool(side_effects="write")
    async def ask(ctx: ToolContext) -> Any:
        return await ctx.once("ask", lambda: ctx.pause("await_input"))

    async with make_box(ask) as box:
        paused = await box.call("ask", user=ANN)
        assert (await box.answer(paused.pending_id, "yes", by=ANN)).content == "yes"


async def test_closing_stops_what_runs_and_tells_its_end(disk_box: MakeBox) -> None:
    started = asyncio.Event()

    @tool(side_effects="write")
    async def work() -> None:
        started.set()
        await asyncio.sleep(60)

    async with disk_box(work) as box:
        task = asyncio.create_task(box.call("work", user=ANN, run_id="r"))
        await started.wait()
    assert (await task).error.error_code == "cancelled"
    async with disk_box(work) as box:
        assert ends(await box.events(user=ANN, run_id="r")) == [400, 420]
        assert await box.pending.list(by=ANN) == []


async def test_a_toolbox_that_is_not_open_says_so(make_box: MakeBox) -> None:
    box = make_box()
    with pytest.raises(RuntimeError, match="open the Toolbox first"):
        await box.call("anything")
    async with box:
        pass
    with pytest.raises(RuntimeError, match="make a new one"):
        async with box:
            pass


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan")])
async def test_a_deadline_that_is_none_is_refused(make_box: MakeBox, timeout_s: float) -> None:
    async with make_box() as box:
        with pytest.raises(ValueError, match="more than 0"):
            await box.call("anything", timeout_s=timeout_s)


async def test_arguments_that_no_encoder_likes_are_a_failure_not_a_crash(make_box: MakeBox) -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]

    @tool(side_effects="write", input_schema={"type": "object"})
    async def take(**anything: Any) -> int:
        return len(anything)

    @tool(side_effects="pure")
    async def huge() -> int:
        return 10**5000

    async with make_box(take, huge) as box:
        odd = [{"x": deep}, {1: "a", "b": 2}, {"x": {1, 2}}]
        outcomes = [await box.call("take", each, user=ANN, idempotency_key="k") for each in odd]
        large = await box.call("huge")
    assert {outcome.status for outcome in outcomes} == {"failed"}
    assert large.error.error_code == "output_invalid"


async def test_a_resumed_call_keeps_the_caller_s_context_without_its_secrets(make_box: MakeBox) -> None:
    @tool(side_effects="read")
    async def where(ctx: ToolContext) -> dict[str, Any]:
        await ctx.pause("await_input")
        inner = await ctx.call("paths")
        return {"outer": ctx.allowed_paths, "inner": getattr(inner, "content", None), "tool": ctx.tool_context}

    @tool(side_effects="read")
    async def paths(ctx: ToolContext) -> Any:
        return ctx.allowed_paths

    context = ToolContext(
        "t", user_id=ANN, allowed_paths=["/safe"], tool_context={"theme": "dark", "api_token": "s3cret"}
    )
    async with make_box(where, paths) as box:
        paused = await box.call("where", user=ANN, context=context)
        done = await box.answer(paused.pending_id, by=ANN)
    assert list(done.content["outer"]) == list(done.content["inner"]) == ["/safe"]
    assert done.content["tool"] == {"theme": "dark", "user_id": ANN}


async def test_a_call_from_another_event_loop_is_refused_and_says_what_to_do(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    def one() -> int:
        return 1

    async with make_box(one) as box:
        with pytest.raises(RuntimeError, match=r"opened in another event loop.*run_coroutine_threadsafe"):
            await asyncio.to_thread(asyncio.run, box.call("one"))
        events = await box.events()
        outcome = await box.call("one")
    assert (len(events), outcome.content) == (0, 1)


async def test_an_answer_from_another_event_loop_is_refused_before_the_question_is_taken(make_box: MakeBox) -> None:
    @tool(side_effects="write", destructive=True)
    def drop() -> str:
        return "dropped"

    async with make_box(drop) as box:
        asked = await box.call("drop", user=ANN)
        ways = [box.approve(asked.pending_id, by=ANN), box.deny(asked.pending_id, by=ANN), box.cancel("x", by=ANN)]
        for way in ways:
            with pytest.raises(RuntimeError, match="opened in another event loop"):
                await asyncio.to_thread(asyncio.run, way)
        done = await box.approve(asked.pending_id, by=ANN)
    assert done.content == "dropped"


async def test_a_closed_toolbox_reaches_no_tool_any_more(make_box: MakeBox) -> None:
    runs = list[str]()

    @tool(side_effects="pure")
    def work() -> None:
        runs.append("work")

    @tool(side_effects="write", destructive=True)
    def drop() -> None:
        runs.append("drop")

    async with make_box(work, drop) as box:
        asked = await box.call("drop", user=ANN)
    for late in (box.call("work"), box.approve(asked.pending_id, by=ANN)):
        with pytest.raises(RuntimeError, match="closed: its `async with` is over"):
            await late
    assert runs == []


async def test_a_call_stopped_while_its_question_is_stored_leaves_no_question(make_box: MakeBox) -> None:
    reached, go = asyncio.Event(), asyncio.Event()

    @tool(side_effects="write")
    async def ask(ctx: ToolContext) -> None:
        await ctx.pause("why", prompt="Why?")

    async with make_box(ask) as box:
        add = box.store.pending.add

        async def slow(action: PendingAction, **options: Any) -> PendingAction | None:
            reached.set()
            await go.wait()
            return await add(action, **options)

        box.store.pending.add = slow
        running = asyncio.create_task(box.call("ask", user=ANN, run_id="r"))
        await reached.wait()
        box.router.inflight.cancel("r")
        outcome = await running
        go.set()
        async with asyncio.timeout(20):
            while await box.store.journal.find(outcome.call_id, "") or await box.pending.list(by=ANN):
                await asyncio.sleep(0.01)
        assert ends(await box.events(user=ANN, run_id="r")) == [400, 420]
    assert outcome.error.error_code == "cancelled"


@pytest.mark.waits
async def test_an_intent_that_never_came_to_the_disk_holds_no_key(make_box: MakeBox) -> None:
    runs = list[str]()

    @tool(side_effects="write")
    async def pay() -> None:
        runs.append("pay")

    async with make_box(pay) as box:
        begin, begun = box.store.journal.begin, asyncio.Event()

        async def hang(_: object) -> None:
            begun.set()
            await asyncio.sleep(60)

        box.store.journal.begin = hang
        calling = asyncio.ensure_future(box.call("pay", user=ANN, idempotency_key="K", timeout_s=1))
        await begun.wait()
        late = await calling
        box.store.journal.begin = begin
        async with asyncio.timeout(20):
            while (again := await box.call("pay", user=ANN, idempotency_key="K")).status == "failed":
                await asyncio.sleep(0.05)
    assert (late.error.error_code, again.status, runs) == ("timeout", "completed", ["pay"])


async def test_a_call_whose_intent_cannot_be_written_does_not_run_and_has_no_result_to_keep(
    make_box: MakeBox, caplog: pytest.LogCaptureFixture
) -> None:
    runs = list[str]()

    @tool(side_effects="write")
    async def pay() -> None:
        runs.append("pay")

    async def full(_: object) -> None:
        raise StoreError("the disk is full")

    async with make_box(pay) as box:
        box.store.journal.begin = full
        outcome = await box.call("pay", user=ANN)
    assert (outcome.error.error_code, runs) == ("store_unavailable", [])
    assert "waits to be recorded" not in caplog.text


async def test_a_wish_from_another_process_stops_the_calls_of_its_tenant_alone(make_box: MakeBox) -> None:
    started, go = asyncio.Semaphore(0), asyncio.Event()

    @tool(side_effects="read")
    async def wait() -> str:
        started.release()
        await go.wait()
        return "done"

    async with make_box(wait) as box:
        theirs, others = (asyncio.create_task(box.call("wait", user=who, run_id="r")) for who in (ANN, "other:eve"))
        await started.acquire()
        await started.acquire()
        await box.store.cancels.request("r", tenant="acme", by=ANN)
        stopped = await asyncio.wait_for(theirs, 20)
        go.set()
        left_alone = await others
    assert (stopped.error.error_code, left_alone.status) == ("cancelled", "completed")


async def test_a_tool_that_calls_itself_without_end_fails(make_box: MakeBox) -> None:
    depths: list[int] = []

    @tool(side_effects="pure")
    async def again(depth: int, ctx: ToolContext) -> str:
        depths.append(depth)
        inner = await ctx.call("again", {"depth": depth + 1})
        return inner.error.error_code if isinstance(inner, Failed) else str(outcome_to_dict(inner)["content"])

    async with make_box(again) as box:
        outcome = await box.call("again", {"depth": 0})

    assert isinstance(outcome, Completed)
    assert (outcome.content, depths) == ("nested_too_deep", list(range(21)))


async def test_the_name_of_an_artifact_does_not_reveal_a_secret_argument(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    async def keep(password: str, ctx: ToolContext) -> str:
        """Keep a file that is named by an argument."""
        return await ctx.save_artifact(b"x", media_type="text/plain", name=f"of-{password}.txt")

    async with make_box(keep) as box:
        outcome = await box.call("keep", {"password": "hunter2-canary"}, user="acme:ann")
        assert isinstance(outcome, Completed)
        listed = await box.store.artifacts.list(tenant="acme", user="ann")
    assert [ref.id for ref in listed] == [outcome.content]
    assert "canary" not in listed[0].name
