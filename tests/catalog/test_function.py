"""Functions as tools: what `@tool` reads, what it declares, and how they run."""

import asyncio
import functools
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import BaseModel

from toolpost.catalog.function import FunctionTool, run_tool, tool
from toolpost.contracts.calls import (
    NO_CREDENTIAL,
    AuthorizedCall,
    PermittedCall,
    RequestedCall,
    ToolOutput,
    ValidatedCall,
)
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import (
    PauseSignal,
    ToolClientError,
    ToolCollisionError,
    ToolExecutionError,
    ToolSchemaError,
)
from toolpost.contracts.outcomes import ToolResult
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Question
from toolpost.contracts.spec import ReplayClass, SideEffects, Tool, ToolCategory, ToolSpec


def authorized(made: Tool, context: ToolContext | None = None, **arguments: Any) -> AuthorizedCall:
    request = RequestedCall("call_1", "run_1", made.spec.name, arguments, Principal("acme", "ann"))
    permitted = PermittedCall(ValidatedCall(request, made, arguments))
    return AuthorizedCall(permitted, NO_CREDENTIAL, lambda: context or ToolContext())


@tool
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="pure")
def where() -> str:
    """Tell the thread."""
    return threading.current_thread().name


@pytest.mark.req("GEN-17", "NCON-02", "PTYPE-01")
def test_a_function_is_described_by_itself() -> None:
    assert isinstance(add, Tool)
    assert (add.spec.name, add.spec.description, add.spec.category) == ("add", "Add two numbers.", ToolCategory.CUSTOM)
    assert add.spec.input_schema["required"] == ["a"]
    assert add.spec.input_schema["properties"]["a"] == {"type": "integer"}
    assert add.spec.output_schema == {"type": "integer"}


def test_a_declaration_says_more_than_the_function() -> None:
    @tool(
        desc="Send a letter.",
        name="post.send",
        side_effects="external",
        destructive=True,
        tags=["post"],
        timeout_s=5,
        cost_hint="1 EUR",
        latency_hint_ms=900,
        category=ToolCategory.NETWORK,
        version="3",
        lenient=True,
        cache_ttl_s=1,
        max_concurrency=2,
        deprecated=True,
        extra={"owner": "ann"},
    )
    async def send(to: str) -> None: ...

    spec = send.spec
    assert (spec.name, spec.description, spec.category) == ("post.send", "Send a letter.", ToolCategory.NETWORK)
    assert (spec.tags, spec.version, spec.extra, spec.deprecated) == (("post",), "3", {"owner": "ann"}, True)
    assert (spec.timeout_s, spec.cache_ttl_s, spec.max_concurrency) == (5, 1, 2)
    assert (spec.cost_hint, spec.latency_hint_ms, spec.validate_inputs) == ("1 EUR", 900, "lenient")


@pytest.mark.parametrize(
    ("effects", "replay", "destructive", "network"),
    [
        (None, "unsafe", False, False),
        ("pure", "pure", False, False),
        ("read", "idempotent", False, False),
        ("write", "unsafe", False, False),
        ("stateful", "unsafe", False, False),
        ("external", "unsafe", False, True),
    ],
)
def test_side_effects_decide_what_is_not_declared(
    effects: SideEffects | None, replay: ReplayClass, destructive: bool | None, network: bool
) -> None:
    @tool(side_effects=effects)
    def act() -> None: ...

    assert act.spec.side_effects == (effects or "write")
    assert act.spec.replay == replay
    assert act.spec.safety == (network, False, destructive, network)


def test_what_is_declared_outweighs_what_is_derived() -> None:
    @tool(side_effects="external", destructive=False, network=False, open_world=False, file=True, replay="keyed")
    def act() -> None: ...

    assert act.spec.safety == (False, True, False, False)
    assert act.spec.replay == "keyed"


def test_an_idempotent_writer_may_be_repeated() -> None:
    @tool(side_effects="write", idempotent=True)
    def put() -> None: ...

    assert put.spec.replay == "idempotent"


def test_the_decorator_can_be_called_with_function_and_declaration_at_once() -> None:
    def wipe() -> None: ...

    made: FunctionTool = tool(wipe, destructive=True)  # type: ignore[call-overload]

    assert made.spec.safety.destructive is True


@pytest.mark.parametrize(
    ("declared", "complaint"),
    [
        ({"side_effects": "reads"}, "side_effects='reads' is not one of pure, read, write, external, stateful"),
        ({"replay": "always"}, "replay='always' is not one of pure, idempotent, keyed, unsafe"),
    ],
)
def test_a_misspelled_declaration_is_refused(declared: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        tool(**declared)(lambda: None)


def test_an_unknown_declaration_is_refused() -> None:
    make: Any = tool

    with pytest.raises(TypeError, match="sideeffects"):

        @make(sideeffects="pure")
        def act() -> None: ...


@pytest.mark.parametrize("name", ["has space", "a.b.c", "größe", "x" * 65])
def test_a_name_that_models_do_not_accept_is_refused(name: str) -> None:
    with pytest.raises(ToolCollisionError):

        @tool(name=name)
        def act() -> None: ...


def test_a_function_without_a_name_needs_one() -> None:
    for nameless in (lambda: None, functools.partial(lambda: None)):
        with pytest.raises(ToolCollisionError, match=r"has no name; give it one: tool\(name=...\)"):
            tool(nameless)
    assert tool(name="nothing")(functools.partial(lambda: None)).spec.name == "nothing"


def test_a_schema_of_ones_own_replaces_the_derived_one_and_is_checked() -> None:
    own = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}}

    @tool(input_schema=own, output_schema={"type": "number"})
    def act(**given: Any) -> float:
        return 1.5

    assert (act.spec.input_schema, act.spec.output_schema) == (own, {"type": "number"})
    with pytest.raises(ToolSchemaError):
        tool(name="broken", input_schema={"type": "objekt"})(lambda: None)


def test_the_context_is_no_argument() -> None:
    @tool
    async def who(ctx: ToolContext, loud: bool = False) -> str:
        """Tell the user."""
        return str(ctx.user_id)

    assert list(who.spec.input_schema["properties"]) == ["loud"]


async def test_tools_stay_callable_as_the_functions_they_were() -> None:
    assert await add(1, b=2) == 3
    assert where() == threading.current_thread().name
    assert (getattr(add, "__name__", ""), add.__doc__, repr(add)) == ("add", "Add two numbers.", "<tool add>")


async def test_a_plain_function_runs_in_a_worker_thread() -> None:
    output = await where.invoke(authorized(where))

    assert output == ToolOutput("toolpost-worker")


async def test_a_generator_works_in_a_worker_thread_too_and_gives_a_list() -> None:
    @tool
    def places(count: int) -> Iterator[str]:
        for number in range(count):
            yield f"{number} in {threading.current_thread().name}"

    output = await places.invoke(authorized(places, count=2))

    assert output == ToolOutput("1 in toolpost-worker")


async def test_a_generator_without_an_end_is_closed_when_no_one_waits_any_more() -> None:
    under_way, closed = threading.Event(), threading.Event()

    @tool
    def count_up() -> Iterator[int]:
        try:
            for number in itertools.count():
                under_way.set()
                yield number
        finally:
            closed.set()

    call = asyncio.create_task(count_up.invoke(authorized(count_up)))
    assert await asyncio.to_thread(under_way.wait, 20)
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert await asyncio.to_thread(closed.wait, 20)


async def test_an_async_generator_gives_its_last_value_and_is_closed_when_the_call_is_cancelled() -> None:
    under_way, closed = asyncio.Event(), asyncio.Event()

    @tool
    async def count_up(to: int) -> AsyncIterator[int]:
        try:
            for number in range(to):
                yield number
                if number == 2:
                    under_way.set()
                    await asyncio.Event().wait()
        finally:
            closed.set()

    assert await count_up.invoke(authorized(count_up, to=2)) == ToolOutput(1)
    assert await count_up.invoke(authorized(count_up, to=0)) == ToolOutput(None)
    closed.clear()
    call = asyncio.create_task(count_up.invoke(authorized(count_up, to=9)))
    await under_way.wait()
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert closed.is_set()


async def test_an_async_function_runs_where_it_is_called() -> None:
    @tool
    async def task() -> str:
        current = asyncio.current_task()
        return current.get_name() if current else ""

    current = asyncio.current_task()
    assert current is not None
    assert await task.invoke(authorized(task)) == ToolOutput(current.get_name())


async def test_a_plain_wrapper_around_an_async_function_is_awaited() -> None:
    def logged(fn: Callable[..., Awaitable[int]]) -> Callable[..., Awaitable[int]]:
        @functools.wraps(fn)
        def wrapper(**kwargs: Any) -> Awaitable[int]:
            return fn(**kwargs)

        return wrapper

    @tool
    @logged
    async def double(a: int) -> int:
        return 2 * a

    assert await double.invoke(authorized(double, a=21)) == ToolOutput(42)


class Point(BaseModel):
    x: int
    y: int = 0


@dataclass
class Size:
    width: int


async def test_typed_arguments_and_results_are_translated() -> None:
    @tool
    async def grow(point: Point, size: Size) -> Point:
        return Point(x=point.x + size.width, y=point.y)

    output = await grow.invoke(authorized(grow, point={"x": 1}, size={"width": 2}))

    assert output == ToolOutput({"x": 3, "y": 0})


@pytest.mark.parametrize(
    ("returned", "output"),
    [
        (None, ToolOutput(None)),
        ([1, {"a": 2}], ToolOutput([1, {"a": 2}])),
        (Point(x=1), ToolOutput({"x": 1, "y": 0})),
        (b"\x00\x01", ToolOutput(b"\x00\x01", media_type="application/octet-stream")),
        (ToolOutput("<p>", media_type="text/html"), ToolOutput("<p>", media_type="text/html")),
        (ToolResult(success=True, result=7, content_text="seven"), ToolOutput(7, text="seven")),
        (ToolResult(success=True, result=Point(x=1)), ToolOutput({"x": 1, "y": 0})),
        (ToolResult(success=True, result=b"\x00"), ToolOutput(b"\x00", media_type="application/octet-stream")),
    ],
    ids=["none", "json", "model", "bytes", "output", "result", "result-model", "result-bytes"],
)
async def test_whatever_a_function_returns_becomes_output(returned: Any, output: ToolOutput) -> None:
    @tool
    async def give() -> Any:
        return returned

    assert await give.invoke(authorized(give)) == output


@pytest.mark.parametrize(("error", "said"), [("disk full", "disk full"), (None, "without a reason")])
async def test_a_result_that_reports_a_failure_is_one(error: str | None, said: str) -> None:
    @tool
    async def give() -> ToolResult:
        return ToolResult(success=False, error=error)

    with pytest.raises(ToolExecutionError, match=said):
        await give.invoke(authorized(give))


async def test_a_tool_that_pauses_answers_with_its_question() -> None:
    @tool
    async def choose(ctx: ToolContext) -> str:
        return str(await ctx.pause("which", {"prompt": "Which one?"}))

    for answer in (await choose.invoke(authorized(choose)), await run_tool(authorized(choose))):
        assert isinstance(answer, Question)
        assert answer.prompt == "Which one?"


@pytest.mark.req("PTYPE-03")
async def test_executed_directly_a_tool_gives_a_result_with_its_times() -> None:
    result = await add.execute({"a": 1}, ToolContext())

    assert (result.success, result.result, result.error) == (True, 2, None)
    assert result.completed_at is not None
    assert result.started_at > 1.6e12
    assert result.duration_ms == result.completed_at - result.started_at


@pytest.mark.req("PTYPE-03")
async def test_executed_directly_a_tool_that_raises_gives_a_failed_result() -> None:
    @tool
    def divide(a: int) -> float:
        return 1 / a

    result = await divide.execute({"a": 0}, ToolContext())

    assert (result.success, result.error) == (False, "ZeroDivisionError: division by zero")
    assert result.error_info is not None
    assert (result.error_info["error_code"], result.error_info["tool_name"]) == ("tool_raised", "divide")


async def test_executed_directly_an_error_of_the_tree_keeps_its_code() -> None:
    @tool
    async def fail() -> None:
        raise ToolClientError("no such page", status_code=404)

    result = await fail.execute({}, ToolContext())

    assert result.error_info is not None
    assert (result.error_info["error_code"], result.error_info["status_code"]) == ("client_error", 404)


async def test_a_failure_without_a_message_is_named_by_its_type() -> None:
    @tool
    async def fail() -> None:
        raise KeyError

    assert (await fail.execute({}, ToolContext())).error == "KeyError: no message"


async def test_executed_directly_a_pause_and_a_cancellation_pass_through() -> None:
    @tool
    async def choose(ctx: ToolContext) -> None:
        await ctx.pause("which")

    @tool
    async def stop() -> None:
        raise asyncio.CancelledError

    with pytest.raises(PauseSignal):
        await choose.execute({}, ToolContext())
    with pytest.raises(asyncio.CancelledError):
        await stop.execute({}, ToolContext())


async def test_the_same_function_runs_under_another_record() -> None:
    other = add.renamed(replace(add.spec, name="math.plus"))

    assert other.spec.name == "math.plus"
    assert await other.invoke(authorized(other, a=2, b=3)) == ToolOutput(5)


async def test_a_record_of_toolpost_is_a_result_as_a_dataclass_is() -> None:
    @tool
    async def describe() -> Any:
        """Describe a tool."""
        return ToolSpec(name="x", tags=("a",))

    result = await describe.execute({}, ToolContext())
    assert result.success
    assert (result.result["name"], result.result["tags"], result.result["target"]) == ("x", ["a"], None)
