"""A tool that raises what would end a program fails its call; Ctrl-C still ends the program."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.life_of_a_call.conftest import MakeBox
from toolpost import (
    ExternalToolConfig,
    Failed,
    ReactPlanner,
    ToolContext,
    ToolError,
    ToolNode,
    ToolRegistry,
    tool,
)
from toolpost.catalog.function import FunctionTool
from toolpost.testing import ScriptedModel, tool_calls


class Odd(BaseException):
    """An exception that is no `Exception`, as libraries have them."""


ENDS = {
    KeyboardInterrupt: "RuntimeError: the tool raised KeyboardInterrupt",
    GeneratorExit: "RuntimeError: the tool raised GeneratorExit",
    SystemExit: "SystemExit: enough",
    Odd: "Odd: enough",
}
kinds = pytest.mark.parametrize("kind", list(ENDS))


def leaving(kind: type[BaseException]) -> list[FunctionTool]:
    """Tools of every form that end with such an exception."""

    @tool(side_effects="pure")
    def plain() -> str:
        raise kind("enough")

    @tool(side_effects="pure")
    def plain_stream() -> Iterator[int]:
        yield 1
        raise kind("enough")

    @tool(side_effects="pure")
    async def at_once() -> str:
        raise kind("enough")

    @tool(side_effects="pure")
    async def later() -> str:
        await asyncio.sleep(0)
        raise kind("enough")

    @tool(side_effects="pure")
    async def stream() -> AsyncIterator[int]:
        yield 1
        raise kind("enough")

    @tool(side_effects="pure")
    async def step(ctx: ToolContext) -> str:
        async def leave() -> str:
            raise kind("enough")

        return await ctx.once("step", leave)

    async def show(arguments: Any, ctx: ToolContext) -> Any:
        raise kind("enough")

    @tool(side_effects="write", preview=show)
    async def previewed() -> str:
        return "never"

    return [plain, plain_stream, at_once, later, stream, step, previewed]


@kinds
async def test_every_form_of_tool_fails_in_the_same_words(make_box: MakeBox, kind: type[BaseException]) -> None:
    tools = leaving(kind)
    async with make_box(*tools) as box:
        outcomes = [await box.call(one.spec.name) for one in tools]
        ends = [(await box.events(run_id=outcome.run_id))[-1].code.name for outcome in outcomes]

    assert [str(outcome.error) for outcome in outcomes if isinstance(outcome, Failed)] == [ENDS[kind]] * len(tools)
    assert ends == ["TOOL_CALL_FAILED"] * len(tools)


def payment(kind: type[BaseException], *, times: int) -> tuple[FunctionTool, list[str]]:
    """A tool whose step is cut off as often, and that comes to it again each time; and what the step did."""
    done: list[str] = []

    @tool(side_effects="write")
    async def pay(ctx: ToolContext) -> str:
        async def send() -> str:
            done.append("sent")
            if len(done) <= times:
                raise kind("enough")
            return f"receipt {len(done)}"

        try:
            return await ctx.once("send", send)
        except kind:
            return await ctx.once("send", send)

    return pay, done


cuts = pytest.mark.parametrize("kind", [*ENDS, asyncio.CancelledError])


@cuts
async def test_a_step_that_is_cut_off_is_asked_about_each_time_before_it_runs_again(
    make_box: MakeBox, kind: type[BaseException]
) -> None:
    pay, done = payment(kind, times=2)
    async with make_box(pay) as box:
        first = await box.call("pay")
        ran = [len(done)]
        second = await box.answer(first.pending_id, by="local:ann", decision="not_happened")
        ran.append(len(done))
        paid = await box.answer(second.pending_id, by="local:ann", decision="rerun")

    assert (first.question.kind, first.question.payload) == ("unknown", {"step": "send"})
    assert (second.question.kind, second.question.prompt) == ("unknown", first.question.prompt)
    assert (paid.content, [*ran, len(done)]) == ("receipt 3", [1, 2, 3])


@cuts
async def test_a_step_that_was_cut_off_and_happened_is_not_repeated(
    make_box: MakeBox, kind: type[BaseException]
) -> None:
    pay, done = payment(kind, times=1)
    async with make_box(pay) as box:
        asked = await box.call("pay")
        paid = await box.answer(asked.pending_id, "receipt 1", by="local:ann", decision="happened")

    assert (paid.content, done) == ("receipt 1", ["sent"])


@kinds
async def test_a_tool_that_is_executed_by_itself_returns_the_failure(kind: type[BaseException]) -> None:
    results = [await one.execute({}, ToolContext()) for one in leaving(kind) if one.spec.name in ("plain", "later")]

    assert [result.error for result in results] == [ENDS[kind]] * 2


@kinds
async def test_a_call_inside_a_call_and_one_of_a_planner_fail_alone(
    make_box: MakeBox, kind: type[BaseException]
) -> None:
    @tool(side_effects="pure")
    async def outer(ctx: ToolContext) -> str:
        inner = await ctx.call("later")
        return f"inside: {inner.status}"

    model = ScriptedModel(tool_calls(("later", {}), ("outer", {})), "done")
    async with make_box(outer, *leaving(kind)) as box:
        result = await ReactPlanner(catalog=box, llm=model).run("Do it.")

    assert result.reason == "answer_complete"
    assert (ENDS[kind] in model.results[0], model.results[1]) == (True, "inside: failed")


@kinds
async def test_a_tool_of_a_node_raises_the_error_of_a_failed_call(tmp_path: Path, kind: type[BaseException]) -> None:
    (tmp_path / "own.py").write_text(
        "from toolpost import tool\n\nclass Odd(BaseException):\n    pass\n\n"
        f"@tool(side_effects='pure')\nasync def leave() -> str:\n    raise {kind.__name__}('enough')\n"
    )
    config = ExternalToolConfig(name="own", transport="python", connection=str(tmp_path / "own.py"))

    async with ToolNode(config=config, registry=ToolRegistry()) as node:
        with pytest.raises(ToolError) as failed:
            await node.call("own.leave", {})

    assert str(failed.value) == ENDS[kind]


@contextmanager
def plain_keyboard() -> Iterator[None]:
    """Let Ctrl-C raise in the midst of what runs, as where a loop is not run by `asyncio.run`."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("run", ["call", "execute"])
async def test_ctrl_c_within_a_tool_is_no_failure_of_it(make_box: MakeBox, run: str) -> None:
    @tool(side_effects="pure")
    async def busy() -> str:
        signal.raise_signal(signal.SIGINT)
        return "never"

    async with make_box(busy) as box:
        calling: Callable[[], Any] = {"call": lambda: box.call("busy"), "execute": lambda: busy.execute({}, {})}[run]
        with plain_keyboard(), pytest.raises(KeyboardInterrupt):
            await calling()


@pytest.mark.parametrize("run", ["call", "call inside a call", "execute"])
async def test_a_call_whose_coroutine_is_closed_has_no_outcome(make_box: MakeBox, run: str) -> None:
    ends: list[str] = []

    @tool(side_effects="pure")
    async def wait() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except GeneratorExit:
            ends.append("closed")
            raise
        return "never"

    @tool(side_effects="pure")
    async def outer(ctx: ToolContext) -> str:
        return (await ctx.call("wait")).status

    async with make_box(wait, outer) as box:
        calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
            "call": lambda: box.call("wait"),
            "call inside a call": lambda: box.call("outer"),
            "execute": lambda: wait.execute({}, {}),
        }
        waiting = calls[run]()
        waiting.send(None)  # as far as the future of the tool
        with pytest.raises(GeneratorExit):
            waiting.throw(GeneratorExit)

    assert ends == ["closed"]
