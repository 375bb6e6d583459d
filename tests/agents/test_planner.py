"""A model and its tools take turns; what goes wrong is told to the model, and a run always ends."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from toolpost import ConfigError, PlannerFinish, ReactPlanner, Settings, Toolbox, ToolContext, ToolError, tool
from toolpost.errors import ToolAuthError, ToolExecutionError, ToolOutputError, ToolTimeoutError
from toolpost.testing import ScriptedModel, tool_calls

QUIET = Settings(data_dir=None, policy="exploratory")
ANN = {"user_id": "acme:ann", "trace_id": "trace-1"}


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="pure")
async def fail() -> None:
    """Fail."""
    raise RuntimeError("out of paper")


@tool(side_effects="pure")
async def seen(ctx: ToolContext) -> dict[str, Any]:
    """Tell what a tool sees."""
    return {
        "user": ctx.user_id,
        "tenant": ctx.tenant_id,
        "trace": ctx.trace_id,
        "paths": ctx.allowed_paths,
        "names": sorted(ctx.tool_context),
        "topic": ctx.llm_context.get("topic"),
    }


async def test_a_request_is_answered_with_tools() -> None:
    model = ScriptedModel(
        tool_calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})), tool_calls(("add", {"a": 3, "b": 7})), "10"
    )
    async with Toolbox(tools=[add], settings=QUIET) as box:
        result = await ReactPlanner(catalog=box, llm=model).run("What is 1+2+3+4?", tool_context=ANN)
        told = await box.events(user="acme:ann", run_id="trace-1")
    assert isinstance(result, PlannerFinish)
    assert (result.reason, result.answer) == ("answer_complete", "10")
    facts = {name: result.metadata[name] for name in ("run_id", "user_id", "iterations", "tool_calls")}
    assert facts == {"run_id": "trace-1", "user_id": "acme:ann", "iterations": 3, "tool_calls": 3}
    assert result.metadata["done"] == [{"tool_name": "add", "status": "completed"}] * 3
    assert model.results == ["3", "7", "10"]
    assert [message["role"] for message in model.requests[-1]] == [
        *("system", "user", "assistant", "tool", "tool", "assistant", "tool")
    ]
    assert len(told) == 9


async def test_calls_of_one_message_run_at_once() -> None:
    both = asyncio.Barrier(2)

    @tool(side_effects="pure")
    async def meet(name: str) -> str:
        await both.wait()
        return f"{name} met"

    model = ScriptedModel(tool_calls(("meet", {"name": "ann"}), ("meet", {"name": "bob"})), "done")
    async with Toolbox(tools=[meet], settings=QUIET) as box:
        await ReactPlanner(catalog=box, llm=model).run("Meet.")
    assert model.results == ["ann met", "bob met"]


@pytest.mark.parametrize(
    ("name", "arguments", "shown"),
    [
        ("ad", {}, 'The call failed (tool_not_found): Tool "ad" not found. Did you mean "add"?'),
        ("add", '{"a": 1, "b": ', "the arguments are not JSON: Expecting value at line 1 column 15"),
        ("add", "[1, 2]", "expected object, got array"),
        ("add", '{"a": 1, "b": NaN}', "The call failed (validation_failed)"),
        ("add", "[" * 100_000, "The call failed (validation_failed)"),
        ("add", "", 'missing required "a"'),
        ("add", {"a": 1, "b": "two"}, '$.b: expected integer, got string "two"'),
        ("fail", {}, "The call failed (tool_raised): RuntimeError: out of paper"),
    ],
    ids=["unknown", "cut", "array", "nan", "deep", "none", "type", "raises"],
)
async def test_a_failed_call_is_reported_to_the_model_and_the_run_continues(
    name: str, arguments: Any, shown: str
) -> None:
    model = ScriptedModel(tool_calls((name, arguments), ("add", {"a": 1, "b": 2})), "sorry")
    async with Toolbox(tools=[add, fail], settings=QUIET) as box:
        result = await ReactPlanner(catalog=box, llm=model).run("Do it.")
    assert isinstance(result, PlannerFinish)
    assert result.reason == "answer_complete"
    assert shown in model.results[0]
    assert model.results[1] == "3"


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        (RuntimeError("no credit"), ToolExecutionError, "the language model failed: RuntimeError: no credit"),
        (TimeoutError(), ToolExecutionError, "the language model failed: TimeoutError"),
        (OSError("https://llm.example/v1?api_key=canary"), ToolExecutionError, r"api_key=\[redacted\]$"),
        (ToolAuthError("the key is refused"), ToolAuthError, "the key is refused"),
        (["text"], ToolOutputError, "message is a list, not an object"),
        ({"content": object()}, ToolOutputError, "message is not JSON: .*; return a dict"),
        ({"content": float("nan")}, ToolOutputError, "message is not JSON"),
        ({"tool_calls": "add"}, ToolOutputError, "tool_calls are not a list of objects"),
        ({"tool_calls": ["add"]}, ToolOutputError, "tool_calls are not a list of objects"),
    ],
    ids=[
        "raises",
        "its-own-timeout",
        "secret",
        "tool-error",
        "list",
        "object",
        "nan",
        "text-for-calls",
        "texts-for-calls",
    ],
)
async def test_a_model_that_fails_is_an_error_that_says_so(line: Any, kind: type[ToolError], message: str) -> None:
    class Plain:
        """Cannot stream."""

        complete = ScriptedModel(line).complete

    async with Toolbox(tools=[add], settings=QUIET) as box:
        with pytest.raises(kind, match=message):
            await ReactPlanner(catalog=box, llm=Plain()).run("Do it.")


async def test_a_model_that_does_not_answer_is_not_waited_for() -> None:
    class Silent:
        async def complete(self, messages: Any, *, tools: Any = ()) -> Any:
            await asyncio.Event().wait()

    async with Toolbox(settings=QUIET) as box:
        with pytest.raises(ToolTimeoutError, match=r"did not answer within 0\.01 s"):
            await ReactPlanner(catalog=box, llm=Silent(), llm_timeout_s=0.01).run("Do it.")


async def test_a_model_that_wants_ever_more_ends_with_its_budget_and_its_last_calls_are_not_made() -> None:
    made: list[int] = []

    @tool(side_effects="write")
    async def note(n: int) -> None:
        made.append(n)

    model = ScriptedModel(*(tool_calls(("note", {"n": n})) for n in range(5)))
    async with Toolbox(tools=[note], settings=QUIET) as box:
        result = await ReactPlanner(catalog=box, llm=model, max_iters=3).run("Go on.")
    assert isinstance(result, PlannerFinish)
    assert (result.reason, result.payload, result.metadata["iterations"]) == ("budget_exhausted", {"answer": None}, 3)
    assert made == [0, 1]


async def test_a_model_with_nothing_to_say_found_no_path() -> None:
    async with Toolbox(settings=QUIET) as box:
        result = await ReactPlanner(catalog=box, llm=ScriptedModel({"content": None})).run("Do it.")
    assert isinstance(result, PlannerFinish)
    assert (result.reason, result.payload) == ("no_path", {"answer": None})


async def test_malformed_calls_are_answered_too() -> None:
    odd = {
        "content": None,
        "tool_calls": [{}, {"function": "add"}, {"function": {"name": "add", "arguments": {"a": 1}}}],
    }
    model = ScriptedModel(odd, "sorry")
    async with Toolbox(tools=[add], settings=QUIET) as box:
        await ReactPlanner(catalog=box, llm=model).run("Do it.")
    asked = model.requests[-1][2]["tool_calls"]
    shown = [message for message in model.requests[-1] if message["role"] == "tool"]
    assert [call["id"] for call in asked] == [message["tool_call_id"] for message in shown]
    assert len({call["id"] for call in asked}) == 3
    assert 'Tool "None" not found' in shown[0]["content"]
    assert 'missing required "b"' in shown[2]["content"]


async def test_one_id_for_several_calls_does_not_make_them_one_call() -> None:
    twice = tool_calls(("add", {"a": 1, "b": 1}), ("add", {"a": 2, "b": 2}))
    for call in twice["tool_calls"]:
        call["id"] = "same"
    model = ScriptedModel(twice, twice, "done")
    async with Toolbox(tools=[add], settings=QUIET) as box:
        await ReactPlanner(catalog=box, llm=model).run("Add.", tool_context=ANN)
    assert model.results == ["2", "4", "2", "4"]


async def test_a_tool_that_was_not_offered_cannot_be_called() -> None:
    model = ScriptedModel(tool_calls(("fail", {}), ("add", {"a": 1, "b": 1}), ("ad", {})), "done")
    async with Toolbox(tools=[add, fail], settings=QUIET) as box:
        await ReactPlanner(catalog=box, llm=model, tools=["add"]).run("Do it.")
    assert model.tools == [["add"], ["add"]]
    assert model.results[0].startswith('The call failed (tool_not_found): Tool "fail" not found\nCall one of the tools')
    assert model.results[1] == "2"
    assert 'Tool "ad" not found. Did you mean "add"?' in model.results[2]


async def test_tools_see_the_tool_context_and_the_model_only_the_harmless_part_of_its_own(tmp_path: Path) -> None:
    model = ScriptedModel(tool_calls(("seen", {})), "done")
    settings = Settings.model_validate({"data_dir": None, "tools": {"allowed_paths": [f"{tmp_path}/{{tenant}}"]}})
    async with Toolbox(tools=[seen], settings=settings) as box:
        await ReactPlanner(catalog=box, llm=model).run(
            "Look.",
            tool_context={**ANN, "access_token": "canary-1", "handle": object()},
            llm_context={"topic": "owls", "service": ({"api_key": "canary-2", "region": "eu"},)},
        )
    assert '"user": "acme:ann", "tenant": "acme", "trace": "trace-1"' in model.results[0]
    assert f'"paths": ["{tmp_path}/acme"]' in model.results[0]
    assert '"names": ["access_token", "handle", "trace_id", "user_id"], "topic": "owls"' in model.results[0]
    assert '{"topic": "owls", "service": [{"region": "eu"}]}' in model.requests[0][0]["content"]
    assert "canary" not in repr(model.requests)


async def test_a_secret_of_the_tool_context_comes_back_in_no_result_error_or_event() -> None:
    @tool(side_effects="read")
    async def ask(ctx: ToolContext, rude: bool = False) -> str:
        """Ask a service."""
        if rude:
            raise LookupError(f"401 for {ctx.tool_context['login']['access_token']}")
        return f"you sent {ctx.tool_context['login']['access_token']}"

    token = "tok-0123456789-abcdef"
    model = ScriptedModel(tool_calls(("ask", {}), ("ask", {"rude": True})), "Done.")
    async with Toolbox(tools=[ask], settings=QUIET) as box:
        planner = ReactPlanner(catalog=box, llm=model)
        await planner.run("Ask.", tool_context={**ANN, "login": {"access_token": token}})
        told = await box.events(user="acme:ann", run_id="trace-1")
    assert [result.count("[redacted]") for result in model.results] == [1, 1]
    assert token not in f"{model.requests} {[event.payload for event in told]}"


async def test_what_a_planner_cannot_work_with_is_said_at_once() -> None:
    async with Toolbox(settings=QUIET) as box:
        with pytest.raises(ConfigError, match=r"llm is the name of a model, or a ChatModel, .*, not int"):
            ReactPlanner(catalog=box, llm=cast("Any", 5))
        with pytest.raises(ConfigError, match="max_iters must be at least 1, not 0"):
            ReactPlanner(catalog=box, llm=ScriptedModel(), max_iters=0)
        with pytest.raises(ConfigError, match="a ToolRegistry, or a list of tools, not int"):
            ReactPlanner(catalog=cast("Any", 5), llm=ScriptedModel())
        with pytest.raises(TypeError, match="is not a tool; put @tool on it"):
            ReactPlanner(catalog=cast("Any", [print]), llm=ScriptedModel())
    with pytest.raises(RuntimeError, match="open the Toolbox first"):
        ReactPlanner(catalog=Toolbox(settings=QUIET), llm=ScriptedModel())
