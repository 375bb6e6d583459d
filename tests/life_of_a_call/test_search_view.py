"""A search view: a model finds, describes and calls tools of a catalog that it is not shown."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from toolpost import Completed, Failed, Paused, PlannerFinish, PlannerPause, ReactPlanner, Settings, Toolbox, tool
from toolpost.testing import ScriptedModel, tool_calls


@tool(name="shop.refund_payment", side_effects="external", destructive=True)
async def refund(charge: str) -> str:
    """Give a customer the money of a charge back."""
    return f"{charge} refunded"


@tool(name="shop.list_charges", side_effects="read", tags=["report"])
async def charges(limit: int = 10) -> list[str]:
    """List charges."""
    return ["ch_1"]


@tool(name="vault.read_secret", side_effects="read")
async def secret() -> str:
    """Read the payment secret of the shop."""
    return "hush"


@pytest.fixture
async def box() -> AsyncIterator[Toolbox]:
    async with Toolbox(tools=[refund, charges, secret], settings=Settings(data_dir=None)) as box:
        yield box


async def test_hits_come_with_schemas_and_a_description_has_everything(box: Toolbox) -> None:
    view = box.search_view()

    found = await view.call("search_tools", {"query": "refund", "limit": 1})
    about = await view.call("describe_tool", '{"name": "shop__refund_payment"}')

    assert isinstance(found, Completed)
    (hit,) = found.content["tools"]
    assert (hit["name"], hit["input_schema"]["required"]) == ("shop.refund_payment", ["charge"])
    assert isinstance(about, Completed)
    assert (about.content["name"], about.content["side_effects"]) == ("shop.refund_payment", "external")
    assert [definition.name for definition in view.definitions()] == ["search_tools", "describe_tool", "call_tool"]


async def test_a_call_through_the_view_is_the_call_of_the_tool_itself(box: Toolbox) -> None:
    view = box.search_view()
    arguments = {"name": "shop.refund_payment", "arguments": {"charge": "ch_1"}}

    paused = await view.call("call_tool", arguments, user="acme:ann", idempotency_key="once")
    assert isinstance(paused, Paused)
    assert (paused.tool_name, paused.question.kind) == ("shop.refund_payment", "approval")
    outcome = await box.approve(paused.pending_id, by="acme:bob")
    again = await view.call("call_tool", json.dumps(arguments), user="acme:ann", idempotency_key="once")

    assert isinstance(outcome, Completed)
    assert (outcome.tool_name, outcome.content) == ("shop.refund_payment", "ch_1 refunded")
    assert isinstance(again, Completed)
    told = {event.payload["tool_name"] for event in await box.events(user="acme:ann") if "tool_name" in event.payload}
    assert told == {"shop.refund_payment"}


@pytest.mark.parametrize("how", ["call_tool", "describe_tool", "vault.read_secret", "vault__read_secret"])
async def test_what_the_view_leaves_out_is_not_there(box: Toolbox, how: str) -> None:
    view = box.search_view(patterns=["shop.*"])

    found = await view.call("search_tools", {"query": "read the payment secret vault.read_secret"})
    more: dict[str, Any] = {} if how == "describe_tool" else {"arguments": {}}
    outcome = await view.call(how, {"name": "vault.read_secret", **more})

    assert isinstance(found, Completed)
    assert "vault" not in json.dumps(found.content)
    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "tool_not_found"
    assert "Did you mean" not in str(outcome.error)
    assert await box.events() == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("search_tools", {}),
        ("search_tools", {"query": " \x00 "}),
        ("search_tools", "no json"),
        ("search_tools", {"query": "refund", "limit": 0}),
        ("search_tools", {"query": "refund", "limit": True}),
        ("search_tools", {"query": "refund", "limit": "many"}),
        ("describe_tool", {"name": 7}),
        ("call_tool", None),
        ("call_tool", {"name": "call_tool", "arguments": {"name": "shop.list_charges"}}),
        ("call_tool", {"name": "shop.list_charges", "arguments": {"limit": "many"}}),
    ],
)
async def test_bad_arguments_are_reported(box: Toolbox, name: str, arguments: Any) -> None:
    outcome = await box.search_view().call(name, arguments)

    if arguments == {"query": " \x00 "}:
        assert isinstance(outcome, Completed)
        assert outcome.content["tools"] == []
    else:
        assert isinstance(outcome, Failed)
        assert outcome.error.error_code == "validation_failed"


@pytest.mark.parametrize("words", ["tags", "sources", "patterns"])
async def test_a_text_in_place_of_a_list_is_refused_as_it_would_select_nothing(box: Toolbox, words: str) -> None:
    only: Any = {words: "shop"}

    with pytest.raises(TypeError, match=rf"{words} is a list, not a string; write {words}=\['shop'\]"):
        await box.registry.search("refund", **only)
    with pytest.raises(TypeError, match=rf"{words} is a list"):
        box.search_view(**only)


def test_names_and_words_of_a_registry_are_lists(box: Toolbox) -> None:
    registry: Any = box.registry

    for use in (registry.to_llm_tools, registry.resolve, lambda text: registry.define_collection("own", text)):
        with pytest.raises(TypeError, match=r"is a list, not a string; write \w+=\['shop'\]"):
            use("shop")


@pytest.mark.parametrize(
    "name", ["search_tools", "describe_tool", "call_tool", "shop.list_charges", "vault.read_secret"]
)
async def test_an_option_that_a_call_does_not_have_is_refused(box: Toolbox, name: str) -> None:
    view = box.search_view(patterns=["shop.*"])
    misspelt: Any = {"usr": "acme:ann"}

    with pytest.raises(TypeError, match="unexpected keyword argument 'usr'"):
        await view.call(name, {"query": "refund", "name": "shop.list_charges"}, **misspelt)


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("search_tools", {"query": "refund", "limt": 1}, '"limt"; allowed are "query", "limit"'),
        ("describe_tool", {"name": "shop.list_charges", "deep": True}, '"deep"; allowed are "name"'),
        ("call_tool", {"name": "shop.list_charges", "args": {}}, '"args"; allowed are "name", "arguments"'),
        ("call_tool", {"name": "search_tools", "arguments": {"q": "x"}}, '"q"; allowed are "query", "limit"'),
        ("call_tool", {"name": "shop.list_charges", "arguments": {"most": 1}}, '"most"; allowed are "limit"'),
    ],
)
async def test_an_argument_that_a_tool_does_not_have_is_reported_in_the_same_words(
    box: Toolbox, name: str, arguments: Any, told: str
) -> None:
    outcome = await box.search_view().call(name, arguments)

    assert isinstance(outcome, Failed)
    assert f"$: unexpected {told}" in str(outcome.error)


async def test_the_tool_calls_of_a_reply_are_answered(box: Toolbox) -> None:
    wishes = [("search_tools", {"query": "charges"}), ("call_tool", {"name": "shop.list_charges"})]
    calls = [
        {"id": str(n), "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for n, (name, arguments) in enumerate(wishes)
    ]

    answered = await box.search_view().answer_tool_calls({"role": "assistant", "tool_calls": calls})

    assert [outcome.tool_name for outcome in answered.outcomes] == ["search_tools", "shop.list_charges"]
    assert answered.messages[1]["content"] == '["ch_1"]'


async def test_a_planner_finds_a_tool_that_came_late_and_pauses_for_it(box: Toolbox) -> None:
    model = ScriptedModel(
        tool_calls(("search_tools", {"query": "give money back"})),
        tool_calls(("call_tool", {"name": "shop.refund_payment", "arguments": {"charge": "ch_1"}})),
        "It is on its way.",
    )
    box.registry.unregister("shop.refund_payment")
    planner = ReactPlanner(catalog=box.search_view(sources=None, where=lambda spec: "shop" in spec.name), llm=model)
    box.registry.register(refund)

    pause = await planner.run("Refund ch_1.", tool_context={"user_id": "acme:ann"})
    assert isinstance(pause, PlannerPause)
    assert pause.tool_name == "shop.refund_payment"
    finish = await planner.resume(pause.resume_token, "approve", by="acme:bob")

    assert isinstance(finish, PlannerFinish)
    assert finish.payload["answer"] == "It is on its way."
    assert {"tool_name": "shop.refund_payment", "status": "completed"} in finish.metadata["done"]
