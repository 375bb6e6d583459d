"""The record that describes a tool, and what it shows to models."""

import json
from typing import get_args

import pytest
from anthropic.types.tool_param import ToolParam
from openai.types.responses.function_tool_param import FunctionToolParam
from pydantic import TypeAdapter

from toolpost.contracts.spec import (
    ReplayClass,
    SafetyProfile,
    SideEffects,
    ToolCategory,
    ToolDefinition,
    ToolSpec,
    destructive_of,
    replay_of,
)


@pytest.mark.req("PTYPE-02")
def test_the_categories_have_their_names() -> None:
    assert {member.name: member.value for member in ToolCategory} == {
        "SYSTEM": "system",
        "FILE": "file",
        "NETWORK": "network",
        "DATA": "data",
        "MEMORY": "memory",
        "CODE": "code",
        "MCP": "mcp",
        "CUSTOM": "custom",
    }


@pytest.mark.req("NCON-01", "NCON-02", "MET-10")
def test_a_tool_is_described_by_its_contract() -> None:
    spec = ToolSpec(
        name="bank.pay",
        input_schema={"type": "object", "properties": {"to": {"type": "string"}}},
        output_schema={"type": "boolean"},
        cost_hint="0.02 EUR",
        latency_hint_ms=800,
        timeout_s=5.0,
        side_effects="external",
        safety=SafetyProfile(network=True, file=False, destructive=True, open_world=True),
    )

    told = json.loads(json.dumps(spec.to_dict()))

    assert told["name"] == "bank.pay"
    assert (told["input_schema"], told["output_schema"]) == (spec.input_schema, spec.output_schema)
    assert (told["cost_hint"], told["latency_hint_ms"], told["timeout_s"]) == ("0.02 EUR", 800, 5.0)
    assert told["safety"] == {"network": True, "file": False, "destructive": True, "open_world": True}


@pytest.mark.req("NCON-02")
def test_a_tool_that_says_nothing_takes_an_empty_object_and_is_never_repeated() -> None:
    spec = ToolSpec(name="quiet")

    assert spec.input_schema == {"type": "object", "properties": {}}
    assert (spec.side_effects, spec.replay, spec.category) == ("write", "unsafe", ToolCategory.CUSTOM)


@pytest.mark.parametrize(
    ("effects", "replay", "safety"),
    [
        ("pure", "pure", SafetyProfile()),
        ("read", "idempotent", SafetyProfile()),
        ("write", "unsafe", SafetyProfile()),
        ("external", "unsafe", SafetyProfile(network=True, open_world=True)),
    ],
)
def test_what_a_record_leaves_out_follows_from_its_side_effects(
    effects: SideEffects, replay: ReplayClass, safety: SafetyProfile
) -> None:
    spec = ToolSpec(name="t", side_effects=effects)

    assert (spec.replay, spec.safety) == (replay, safety)


def test_what_an_outside_source_leaves_out_of_an_external_tool_stays_unknown() -> None:
    assert ToolSpec(name="s.t", source="s", side_effects="external").safety.destructive is None


def test_a_record_cannot_be_changed() -> None:
    spec = ToolSpec(name="fixed")

    with pytest.raises(AttributeError):
        spec.name = "other"  # type: ignore[misc]


def test_records_do_not_share_their_schemas() -> None:
    assert ToolSpec(name="a").input_schema is not ToolSpec(name="b").input_schema


@pytest.mark.parametrize(
    ("effects", "replay"),
    [("pure", "pure"), ("read", "idempotent"), ("write", "unsafe"), ("external", "unsafe"), ("stateful", "unsafe")],
)
def test_side_effects_decide_what_may_be_repeated(effects: SideEffects, replay: ReplayClass) -> None:
    assert replay_of(effects) == replay


@pytest.mark.parametrize(
    ("effects", "replay"),
    [("pure", "pure"), ("read", "idempotent"), ("write", "idempotent"), ("external", "idempotent")],
)
def test_an_idempotent_tool_may_be_repeated_whatever_it_does(effects: SideEffects, replay: ReplayClass) -> None:
    assert replay_of(effects, idempotent=True) == replay


@pytest.mark.parametrize("effects", get_args(SideEffects))
def test_a_declared_destruction_stands_and_only_what_leaves_the_machine_is_unknown(effects: SideEffects) -> None:
    assert destructive_of(effects, True) is True
    assert destructive_of(effects, False) is False
    assert destructive_of(effects, None) is (None if effects == "external" else False)


def test_only_pure_and_reading_calls_leave_no_trace() -> None:
    traceless = {
        effects for effects in get_args(SideEffects) if not ToolSpec(name="t", side_effects=effects).has_effects
    }

    assert traceless == {"pure", "read"}


def test_a_call_leaves_the_machine_by_its_effects_or_by_the_network() -> None:
    assert ToolSpec(name="t", side_effects="external").leaves_machine
    assert ToolSpec(name="t", side_effects="read", safety=SafetyProfile(network=True)).leaves_machine
    assert not ToolSpec(name="t", side_effects="write").leaves_machine


@pytest.mark.req("MISC-21", "PREG-05")
def test_a_definition_has_the_shape_that_each_provider_wants() -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}

    definition = ToolDefinition("add", "Add numbers.", parameters)

    assert definition._asdict() == {"name": "add", "description": "Add numbers.", "parameters": parameters}
    assert definition.to_openai() == {"type": "function", "function": definition._asdict()}
    assert definition.to_anthropic() == {"name": "add", "description": "Add numbers.", "input_schema": parameters}
    assert definition.to_gemini() == {"name": "add", "description": "Add numbers.", "parametersJsonSchema": parameters}
    assert definition.to_bedrock() == {
        "toolSpec": {"name": "add", "description": "Add numbers.", "inputSchema": {"json": parameters}}
    }


def test_the_options_of_a_definition_are_those_of_the_clients_of_the_providers() -> None:
    definition = ToolDefinition("add", "Add numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}})
    callers = ["direct"]

    messages = definition.to_anthropic(defer_loading=True, input_examples=[{"a": 1}], allowed_callers=callers)
    responses = definition.to_openai_responses(defer_loading=True, allowed_callers=callers)

    TypeAdapter(ToolParam).validate_python(messages, strict=True, extra="forbid")
    TypeAdapter(FunctionToolParam).validate_python(responses, strict=True, extra="forbid")
    assert messages.keys() - definition.to_anthropic().keys() == {"defer_loading", "input_examples", "allowed_callers"}
    assert responses.keys() - definition.to_openai_responses().keys() == {"defer_loading", "allowed_callers"}
