"""A call from request to outcome, and what is told of it."""

import json
import sys
import threading
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.life_of_a_call.conftest import MakeBox
from toolpost import Completed, EventCode, Failed, Question, ToolContext, ToolError, tool
from toolpost.errors import ToolExecutionError, ToolNotFoundError, ToolOutputError, ToolValidationError
from toolpost.sources import AuthorizedCall, FunctionTool, ToolOutput

ANN, BOB = "acme:ann", "acme:bob"


@tool(side_effects="pure")
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="read")
def which_thread() -> str:
    """Say which thread this runs in."""
    return threading.current_thread().name


async def codes(box: Any, run_id: str) -> list[EventCode]:
    return [event.code for event in await box.events(user=ANN, run_id=run_id)]


async def test_a_function_is_called_and_its_result_comes_back(make_box: MakeBox) -> None:
    async with make_box(add) as box:
        outcome = await box.call("add", {"a": 2, "b": 3}, user=ANN)
    assert isinstance(outcome, Completed)
    assert (outcome.content, outcome.status) == (5, "completed")


async def test_a_kind_of_function_tool_may_run_its_calls_itself(make_box: MakeBox) -> None:
    class Doubled(FunctionTool):
        __slots__ = ()

        async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
            output = await super().invoke(call)
            return replace(output, content=2 * output.content) if isinstance(output, ToolOutput) else output

    doubled = tool(side_effects="pure", name="doubled")(add.fn)
    doubled.__class__ = Doubled
    async with make_box(doubled) as box:
        assert (await box.call("doubled", {"a": 2, "b": 3})).content == 10


async def test_a_default_is_used_when_an_argument_is_left_out(make_box: MakeBox) -> None:
    async with make_box(add) as box:
        assert (await box.call("add", {"a": 2})).content == 3


async def test_a_plain_function_runs_in_a_worker_thread(make_box: MakeBox) -> None:
    async with make_box(which_thread) as box:
        outcome = await box.call("which_thread")
    assert outcome.content == "toolpost-worker"


@pytest.mark.req("GEN-20", "NRT-02", "TEST-12")
async def test_each_call_tells_requested_started_and_completed(make_box: MakeBox) -> None:
    async with make_box(add) as box:
        outcomes = [await box.call("add", {"a": 2}, user=ANN) for _ in range(2)]
        told = [await codes(box, outcome.run_id) for outcome in outcomes]
    assert [[code.value for code in one] for one in told] == [[400, 405, 410]] * 2


@pytest.mark.req("NEVT-01", "NEVT-02", "MISC-27")
async def test_the_events_of_a_call_say_what_was_called_with_what_and_what_came_of_it(make_box: MakeBox) -> None:
    async with make_box(add) as box:
        outcome = await box.call("add", {"a": 2}, user=ANN)
        requested, started, completed = await box.events(user=ANN, run_id=outcome.run_id)
    assert requested.payload["params"] == {"a": 2}
    assert started.payload["input"] == {"a": 2}
    assert completed.payload["summary"] == 3
    assert completed.payload["duration_ms"] >= 0
    assert {e.payload["correlation_id"] for e in (requested, started, completed)} == {outcome.call_id}
    assert {e.payload["tool_name"] for e in (requested, started, completed)} == {"add"}


@pytest.mark.req("NRT-02", "NEVT-03", "NEVT-05")
async def test_a_call_that_fails_tells_requested_started_and_failed(make_box: MakeBox) -> None:
    @tool(side_effects="write")
    async def broken() -> None:
        raise ValueError("a bug")

    async with make_box(broken) as box:
        outcome = await box.call("broken", user=ANN)
        requested, started, failed = await box.events(user=ANN, run_id=outcome.run_id)
    assert [e.code.value for e in (requested, started, failed)] == [400, 405, 420]
    assert {e.payload["correlation_id"] for e in (requested, started, failed)} == {outcome.call_id}
    assert failed.payload["tool_name"] == "broken"
    assert failed.payload["error_code"] == "tool_raised"
    assert "a bug" in failed.payload["error_message"]
    assert failed.payload["duration_ms"] >= 0


@pytest.mark.req("ERR-14", "ERR-19", "PEXE-10")
async def test_an_unknown_tool_fails_with_the_nearest_name_and_is_reported_without_a_start(make_box: MakeBox) -> None:
    async with make_box(add) as box:
        outcome = await box.call("ad", {"a": 2}, user=ANN)
        told = await box.events(user=ANN, run_id=outcome.run_id)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ToolNotFoundError)
    assert str(outcome.error) == 'Tool "ad" not found. Did you mean "add"?'
    assert [e.code.value for e in told] == [400, 420]
    assert told[1].payload["error_code"] == "tool_not_found"
    assert told[1].payload["error"] == told[1].payload["error_message"] == str(outcome.error)
    assert told[1].payload["duration_ms"] >= 0


@pytest.mark.req("NCON-03", "ERR-15", "GEN-18")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"a": "2"}, "$.a: expected integer"),
        ({}, '"a"'),
        ({"a": 1, "c": 2}, '"c"'),
        ({"a": None}, "$.a"),
        ([1], "$: expected object"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_before_anything_runs(
    make_box: MakeBox, arguments: Any, said: str
) -> None:
    async with make_box(add) as box:
        outcome = await box.call("add", arguments, user=ANN)
        told = await codes(box, outcome.run_id)
    assert isinstance(outcome.error, ToolValidationError)
    assert str(outcome.error).startswith("Parameter validation failed")
    assert said in str(outcome.error)
    assert EventCode.TOOL_CALL_STARTED not in told


async def test_numbers_given_as_text_are_taken_only_where_the_tool_is_lenient(make_box: MakeBox) -> None:
    @tool(side_effects="pure", lenient=True)
    async def double(n: int) -> int:
        return 2 * n

    async with make_box(add, double) as box:
        assert (await box.call("double", {"n": "21"})).content == 42
        assert (await box.call("add", {"a": "21"})).status == "failed"


@pytest.mark.req("NCON-04")
async def test_an_output_that_breaks_its_schema_is_a_failure(make_box: MakeBox) -> None:
    @tool(side_effects="pure", output_schema={"type": "object", "required": ["total"]})
    async def total() -> dict[str, int]:
        return {"sum": 1}

    async with make_box(total) as box:
        outcome = await box.call("total")
    assert isinstance(outcome.error, ToolOutputError)
    assert "total" in str(outcome.error)


class Strange:
    """Not JSON."""


def circle() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize(
    "make",
    [Strange, circle, lambda: {"x": Strange()}, lambda: float("nan"), lambda: {"x": {1j}}],
    ids=["object", "circle", "object inside", "not a number", "complex inside"],
)
async def test_a_result_that_is_not_json_is_a_failure_that_says_so(make_box: MakeBox, make: Any) -> None:
    @tool(side_effects="pure")
    async def strange() -> Any:
        return make()

    async with make_box(strange) as box:
        outcome = await box.call("strange")
    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "output_invalid"


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ValueError("bad day"), "ValueError: bad day"),
        (KeyError("x"), "KeyError"),
        (SystemExit(3), "SystemExit: 3"),
        (RecursionError(), "RecursionError: no message"),
        (MemoryError(), "MemoryError"),
    ],
)
async def test_a_tool_that_crashes_is_a_failure_with_its_type_and_message(
    make_box: MakeBox, raised: BaseException, said: str
) -> None:
    @tool(side_effects="pure")
    async def crash() -> None:
        raise raised

    async with make_box(crash, add) as box:
        outcome = await box.call("crash")
        assert isinstance(outcome.error, ToolExecutionError)
        assert said in str(outcome.error)
        assert (await box.call("add", {"a": 1})).status == "completed"


async def test_an_outcome_has_the_name_of_its_tool_whatever_name_a_model_knows_it_by(make_box: MakeBox) -> None:
    @tool(name="shop.find", side_effects="read")
    async def find(order: int) -> str:
        if not order:
            raise LookupError("there is no order 0")
        return f"order {order}"

    async with make_box(find) as box:
        outcomes = [await box.call("shop__find", given) for given in ({"order": 1}, {"order": 0}, {"order": "x"})]
    assert [outcome.status for outcome in outcomes] == ["completed", "failed", "failed"]
    assert {outcome.tool_name for outcome in outcomes} == {"shop.find"}


async def test_an_error_of_the_tree_keeps_its_class_and_code(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    async def refuse() -> None:
        raise ToolError("not today", code="not_today")

    async with make_box(refuse) as box:
        outcome = await box.call("refuse")
    assert outcome.error.to_dict()["error_code"] == "not_today"


@pytest.mark.req("NEVT-04", "TEST-13", "NEVT-02")
async def test_a_large_result_becomes_an_artifact_with_a_preview_and_nothing_is_lost(make_box: MakeBox) -> None:
    rows = [{"n": n, "word": "übung"} for n in range(5000)]

    @tool(side_effects="read")
    async def many() -> list[dict[str, Any]]:
        return rows

    async with make_box(many, builtins=["artifact_tools"]) as box:
        outcome = await box.call("many", user=ANN)
        (artifact_id,) = outcome.artifacts
        assert outcome.content["artifact_id"] == artifact_id
        assert len(outcome.content["preview"]) == 1000
        told = (await box.events(user=ANN, run_id=outcome.run_id))[-1].payload
        assert told["output_artifact_id"] == artifact_id
        assert "übung" not in str(told)

        whole, offset = "", cast("int | None", 0)
        while offset is not None:
            part = await box.call("artifact_read", {"artifact_id": artifact_id, "offset": offset}, user=ANN)
            whole, offset = whole + part.content["content"], part.content["next_offset"]
        found = await box.call("artifact_search", {"artifact_id": artifact_id, "query": '"n":4999'}, user=ANN)
        asked = [await box.call("artifact_read", {"artifact_id": artifact_id}, user=who) for who in ("rival:eve", BOB)]
    assert len(found.content["matches"]) == 1
    assert [other.error.error_code for other in asked] == ["artifact_not_found"] * 2
    assert json.loads(whole) == rows


async def test_a_tool_reads_the_artifacts_of_the_user_that_it_is_called_for(make_box: MakeBox) -> None:
    @tool(side_effects="read")
    async def keep(ctx: ToolContext) -> str:
        return await ctx.save_artifact(b"hers")

    @tool(side_effects="read")
    async def look(ctx: ToolContext, artifact_id: str) -> str:
        return (await ctx.read_artifact(artifact_id)).decode()

    async with make_box(keep, look) as box:
        kept = (await box.call("keep", user=ANN)).content
        own, other = [await box.call("look", {"artifact_id": kept}, user=who) for who in (ANN, BOB)]

    assert own.content == "hers"
    assert "KeyError" in str(other.error)


@pytest.mark.req("NEVT-02", "NEVT-04")
async def test_of_a_long_result_that_is_handed_on_whole_only_its_shape_is_reported(make_box: MakeBox) -> None:
    rows = [{"n": n, "word": "übung"} for n in range(300)]

    @tool(side_effects="read")
    async def some() -> list[dict[str, Any]]:
        return rows

    async with make_box(some) as box:
        outcome = await box.call("some", user=ANN)
        told = (await box.events(user=ANN, run_id=outcome.run_id))[-1].payload
    assert (outcome.content, outcome.artifacts) == (rows, ())
    assert told["summary"].startswith("list of 300 items, ")
    assert "übung" not in str(told)


@pytest.mark.slow
async def test_fifty_megabytes_arrive_as_an_artifact(make_box: MakeBox) -> None:
    @tool(side_effects="read")
    async def huge() -> str:
        return "x" * 50_000_000

    async with make_box(huge) as box:
        outcome = await box.call("huge")
    assert outcome.content["size"] == 50_000_000
    assert sys.getsizeof(outcome.content["preview"]) < 10_000


async def test_bytes_become_an_artifact(make_box: MakeBox) -> None:
    @tool(side_effects="read")
    async def picture() -> bytes:
        return b"\x89PNG\x00"

    async with make_box(picture, builtins=["artifact_tools"]) as box:
        outcome = await box.call("picture", user=ANN)
        part = await box.call("artifact_read", {"artifact_id": outcome.artifacts[0]}, user=ANN)
    assert part.content["encoding"] == "base64"
    assert part.content["content"] == "iVBORwA="


@pytest.mark.req("NRT-06")
async def test_progress_is_reported_as_an_action_of_the_call(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    async def slow(ctx: ToolContext) -> str:
        ctx.progress("half way", fraction=0.5)
        return ctx.user_id or ""

    async with make_box(slow) as box:
        outcome = await box.call("slow", user=ANN)
        told = await box.events(user=ANN, run_id=outcome.run_id)
    assert outcome.content == ANN
    assert told[2].code is EventCode.SUBAGENT_ACTION
    assert told[2].payload["text"] == "half way"


@pytest.mark.req("MISC-28", "NEVT-01")
async def test_secrets_in_arguments_and_results_are_never_reported(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    async def login(name: str, password: str) -> dict[str, str]:
        return {"token": "t0ps3cret-token", "name": name}

    async with make_box(login) as box:
        outcome = await box.call("login", {"name": "ann", "password": "hunter2-and-more"}, user=ANN)
        told = str([event.to_dict() for event in await box.events(user=ANN, run_id=outcome.run_id)])
    assert outcome.content["token"] == "t0ps3cret-token"
    assert "hunter2-and-more" not in told
    assert "t0ps3cret-token" not in told
    assert "ann" in told


async def test_what_a_tool_does_to_its_arguments_does_not_change_the_record(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    async def scribble(items: list[int]) -> int:
        items.clear()
        return 0

    async with make_box(scribble) as box:
        outcome = await box.call("scribble", {"items": [1, 2]}, user=ANN)
        told = await box.events(user=ANN, run_id=outcome.run_id)
    assert told[0].payload["params"] == {"items": [1, 2]}


async def test_a_tool_can_call_another_as_part_of_the_same_run(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    async def twice(a: int, ctx: ToolContext) -> int:
        inner = await ctx.call("add", {"a": a, "b": a})
        assert isinstance(inner, Completed)
        return int(inner.content)

    async with make_box(twice, add) as box:
        outcome = await box.call("twice", {"a": 4}, user=ANN)
        told = await box.events(user=ANN, run_id=outcome.run_id)
        run = await box.run(outcome.run_id, user=ANN)
    assert outcome.content == 8
    assert [e.code.value for e in told] == [400, 405, 400, 405, 410, 410]
    assert run is not None
    assert run.status == "completed"


@pytest.mark.req("PEXE-04", "MET-09", "PREG-07")
async def test_calls_and_failures_are_counted(make_box: MakeBox) -> None:
    async with make_box(add) as box:
        await box.call("add", {"a": 1})
        await box.call("add", {"a": "x"})
        stats = box.registry.get_stats().call_stats["add"]
    assert (stats.count, stats.failures) == (2, 1)
    assert stats.avg_duration >= 0


@pytest.mark.req("PSEC-06")
async def test_a_read_only_result_is_remembered_for_its_time_and_only_for_its_reader(make_box: MakeBox) -> None:
    seen: list[str] = []

    @tool(side_effects="read", cache_ttl_s=60)
    async def look(key: str) -> int:
        seen.append(key)
        return len(seen)

    async with make_box(look) as box:
        first = await box.call("look", {"key": "a"}, user=ANN)
        again = await box.call("look", {"key": "a"}, user=ANN)
        other = await box.call("look", {"key": "a"}, user="acme:bob")
        told = await codes(box, again.run_id)
    assert (first.content, again.content, other.content) == (1, 1, 2)
    assert (first.cached, again.cached) == (False, True)
    assert [code.value for code in told] == [400, 405, 410]


async def test_an_override_renames_fixes_and_hides_what_a_model_sees(make_box: MakeBox) -> None:
    overrides = {"add": {"name": "plus_ten", "fix": {"b": 10}}, "which_thread": {"hide": True}}
    async with make_box(add, which_thread, overrides=overrides) as box:
        outcome = await box.call("plus_ten", {"a": 5})
        refused = await box.call("plus_ten", {"a": 5, "b": 1})
        hidden = await box.call("which_thread")
        names = [definition.name for definition in box.registry.to_llm_tools()]
        original = box.registry.find("plus_ten").original
    assert outcome.content == 15
    assert refused.error.error_code == "validation_failed"
    assert hidden.error.error_code == "tool_not_found"
    assert "which_thread" not in names
    assert "b" in original.input_schema["properties"]


@pytest.mark.req("GEN-21", "PREG-08")
async def test_tools_come_and_go_while_others_are_called_and_that_is_reported(make_box: MakeBox) -> None:
    async with make_box(add) as box:
        box.registry.register(which_thread)
        assert (await box.call("which_thread")).status == "completed"
        box.registry.unregister("which_thread")
        assert (await box.call("which_thread")).error.error_code == "tool_not_found"
        assert (await box.call("add", {"a": 1})).status == "completed"
        told = await box.store.events.read(run_id="catalog")
    assert [(event.code, event.payload["tool_name"], event.payload["change"]) for event in told] == [
        (EventCode.CATALOG_CHANGED, "which_thread", "added"),
        (EventCode.CATALOG_CHANGED, "which_thread", "removed"),
    ]


async def test_a_call_is_for_whom_its_context_names_and_for_no_one_else(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    async def who(ctx: ToolContext) -> str:
        return f"{ctx.tenant_id} {ctx.user_id}"

    async with make_box(who) as box:
        named = await box.call("who", context=ToolContext(user_id="acme:ann"))
        within = await box.call("who", context=ToolContext(user_id="ann", tenant_id="acme"), user="acme:ann")
        for user in ("acme:ann", "acme:globex:eve"):
            with pytest.raises(ValueError, match=f"for '{user}', and its context for 'globex:eve'"):
                await box.call("who", context=ToolContext(user_id="globex:eve"), user=user)
        runs = await box.runs(user="acme:bob")
    assert named.content == "acme acme:ann"
    assert within.content.startswith("acme ")
    assert len(runs) == 2


def test_what_is_no_tool_is_refused_with_a_word_on_what_to_do(make_box: MakeBox) -> None:
    def bare() -> int:
        return 1

    not_one: Any = bare
    with pytest.raises(TypeError, match="is not a tool; put @tool on it"):
        make_box(not_one)
