"""Functions, nodes and their models as a catalog."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from toolpost import Completed, Failed, Settings, Tool, Toolbox, ToolContext
from toolpost.compat.penguiflow import ModelRegistry, Node, NodePolicy, NodeSpec, build_catalog, tool
from toolpost.compat.penguiflow.catalog import PlannerAction


class Text(BaseModel):
    text: str


class Summary(BaseModel):
    summary: str


@tool(desc="Summarize a text", tags=["local", "local"], side_effects="read")
async def summarize(args: Text, ctx: ToolContext) -> Summary:
    return Summary(summary=args.text[:5])


async def shout(args: Text, ctx: Any) -> Summary:
    """Shout a text."""
    return Summary(summary=args.text.upper())


@pytest.mark.req("STATE-06")
def test_a_catalog_is_built_of_functions_and_of_nodes() -> None:
    registry = ModelRegistry()
    registry.register("loud", Text, Summary)

    quiet, loud = build_catalog([summarize, Node(shout, name="loud")], registry)

    assert (quiet.name, quiet.desc, quiet.side_effects, quiet.tags) == (
        *("summarize", "Summarize a text", "read"),
        ("local",),
    )
    assert (loud.name, loud.desc, loud.side_effects, loud.args_model) == ("loud", "Shout a text.", "pure", Text)
    assert registry.models("summarize") == (Text, Summary)


@pytest.mark.req("STATE-07")
def test_a_name_is_registered_once() -> None:
    registry = ModelRegistry()
    registry.register("summarize", Text, Summary)

    with pytest.raises(ValueError, match="'summarize' already registered"):
        registry.register("summarize", Text, Summary)


def test_what_is_not_registered_is_missed_by_name() -> None:
    with pytest.raises(KeyError, match=r"'gone' not registered; call register\('gone'"):
        ModelRegistry().adapters("gone")


def test_only_models_are_registered() -> None:
    with pytest.raises(TypeError, match="is not a pydantic model"):
        ModelRegistry().register("x", dict, Summary)  # type: ignore[arg-type]  # that is the mistake


def test_a_function_without_models_says_what_it_lacks() -> None:
    async def bare(args: Any, ctx: Any) -> Any:
        return None

    with pytest.raises(TypeError, match=r"'bare' has no models.*registry\.register\('bare'"):
        build_catalog([bare], ModelRegistry())


@pytest.mark.req("MISC-09")
async def test_the_tools_of_a_catalog_are_tools_of_a_toolbox() -> None:
    specs: list[NodeSpec] = build_catalog([Node(summarize, name="summarize")], ModelRegistry())
    assert all(isinstance(spec, Tool) for spec in specs)

    async with Toolbox(tools=specs, settings=Settings(data_dir=None)) as box:
        done = await box.call("summarize", {"text": "long text"})
        refused = await box.call("summarize", {"words": "long text"})

    assert isinstance(done, Completed)
    assert done.content == {"summary": "long "}
    assert isinstance(refused, Failed)
    assert refused.error.error_code == "validation_failed"


async def test_base_model_itself_takes_any_arguments() -> None:
    async def anything(args: BaseModel, ctx: Any) -> Summary:
        return Summary(summary=json.dumps(args.model_dump()))

    registry = ModelRegistry()
    registry.register("anything", BaseModel, Summary)
    async with Toolbox(tools=build_catalog([anything], registry), settings=Settings(data_dir=None)) as box:
        outcome = await box.call("anything", {"n": 1})

    assert isinstance(outcome, Completed)
    assert outcome.content == {"summary": '{"n": 1}'}


def test_examples_reach_the_model_in_the_schema() -> None:
    example = {"args": {"text": "hi"}, "description": "Short", "tags": ["minimal"]}

    @tool(desc="Echo", examples=[example], arg_validation={"reject_placeholders": True}, loading_mode="deferred")
    async def echo(args: Text, ctx: Any) -> Summary:
        return Summary(summary=args.text)

    [spec] = build_catalog([echo], ModelRegistry())

    assert spec.spec.input_schema["examples"] == [{"text": "hi"}]
    record = spec.to_tool_record()
    assert json.loads(json.dumps(record)) == record
    assert (record["examples"], record["loading_mode"]) == ([example], "deferred")
    assert record["extra"] == {"arg_validation": {"reject_placeholders": True}}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (None, ""),
        (True, ""),
        ("too short", "too short"),
        ({"error": "no"}, "no"),
        (False, "arg_validator rejected args"),
    ],
)
async def test_a_tools_own_validator_decides_about_a_call(said: object, reason: str) -> None:
    judged: list[PlannerAction] = []

    def judge(args: Text, action: PlannerAction) -> object:
        judged.append(action)
        return said

    @tool(arg_validator=judge)
    async def echo(args: Text, ctx: Any) -> Summary:
        return Summary(summary=args.text)

    async with Toolbox(tools=build_catalog([echo], ModelRegistry()), settings=Settings(data_dir=None)) as box:
        outcome = await box.call("echo", {"text": "hi"})

    assert judged == [("echo", {"text": "hi"})]
    assert (str(outcome.error).partition(": ")[2] if isinstance(outcome, Failed) else "") == reason


async def test_a_validator_that_breaks_refuses_the_call() -> None:
    def broken(args: Text, action: PlannerAction) -> object:
        raise RuntimeError("oops")

    @tool(arg_validator=broken)
    async def echo(args: Text, ctx: Any) -> Summary:
        return Summary(summary=args.text)

    async with Toolbox(tools=build_catalog([echo], ModelRegistry()), settings=Settings(data_dir=None)) as box:
        outcome = await box.call("echo", {"text": "hi"})

    assert isinstance(outcome, Failed)
    assert "arg_validator raised RuntimeError: oops" in str(outcome.error)


@pytest.mark.parametrize(("validate", "given"), [("both", {"text": "hi"}), ("out", Text(text="hi"))])
async def test_a_node_validates_what_its_policy_says(validate: Any, given: Any) -> None:
    registry = ModelRegistry()
    registry.register("shout", Text, Summary)
    node = Node(shout, policy=NodePolicy(validate=validate))

    assert await node.invoke(given, None, registry=registry) == Summary(summary="HI")


async def test_a_node_refuses_a_message_and_a_result_that_do_not_fit() -> None:
    async def wrong(args: Text, ctx: Any) -> Any:
        return {"text": "no summary"}

    registry = ModelRegistry()
    registry.register("wrong", Text, Summary)
    with pytest.raises(ValidationError, match="text"):
        await Node(wrong).invoke({}, None, registry=registry)
    with pytest.raises(ValidationError, match="summary"):
        await Node(wrong).invoke({"text": "x"}, None, registry=registry)
    unchecked = Node(wrong, policy=NodePolicy(validate="none"))
    assert await unchecked.invoke({}, None, registry=registry) == {"text": "no summary"}


def test_a_node_is_an_async_function_of_two_parameters() -> None:
    def plain(args: Any, ctx: Any) -> None: ...
    async def one(args: Any) -> None: ...
    async def named(args: Any, *, ctx: Any) -> None: ...

    make: Any = Node
    with pytest.raises(TypeError, match="must be declared with async def"):
        make(plain)
    with pytest.raises(ValueError, match="exactly two parameters"):
        make(one)
    with pytest.raises(ValueError, match="Context parameter must be positional"):
        make(named)
    with pytest.raises(ValueError, match="validate must be one of"):
        NodePolicy(validate="sometimes")  # type: ignore[arg-type]  # that is the mistake
