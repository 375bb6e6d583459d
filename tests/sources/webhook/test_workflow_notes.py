"""Schemas and words that people wrote beside a workflow."""

import json
from typing import Any

import pytest

from tests.sources.webhook.boxes import listing, n8n_box, sticky, workflow
from tests.sources.webhook.replay import N8n
from tests.wire.site import Site
from toolpost.contracts.spec import ToolSpec

ASKED = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOLD = json.dumps(ASKED)
ANYTHING = {"type": "object"}


async def spec_of(one: dict[str, Any], **options: Any) -> ToolSpec:
    async with Site(listing(one)) as site:
        webhook = {"kind": "n8n", **options}
        async with n8n_box(N8n(site.url, "key-1234567890"), options=webhook) as box:
            spec: ToolSpec = box.registry.find("n8n.flow").tool.spec
    return spec


@pytest.mark.parametrize(
    "note",
    [
        TOLD,
        f"Adds.\n```json\n{TOLD}\n```",
        f"Adds.\n```\n{TOLD}\n```",
        f"~~~ json input\n{TOLD}\n~~~\nmore",
        f"```json schema\n{TOLD}",
        f"```js\nreturn 1\n```\n```json output\n{{}}\n```\n````json\n{TOLD}\n````",
        f'```json\n{TOLD}\n```\n```json\n{{"properties": {{}}}}\n```',
    ],
    ids=["bare", "fenced", "without a language", "tildes", "not closed", "the third", "the first"],
)
async def test_a_schema_is_found_in_a_note(note: str) -> None:
    assert (await spec_of(workflow(nodes=[sticky(note)]))).input_schema == ASKED


@pytest.mark.parametrize(
    "place",
    [
        {"description": TOLD},
        {"meta": {"description": TOLD}},
        {"node": {"notes": TOLD}},
        {"activeVersion": {"description": TOLD, "nodes": workflow()["nodes"]}},
    ],
    ids=["description", "meta", "notes", "version"],
)
async def test_a_schema_is_found_wherever_people_write(place: Any) -> None:
    assert (await spec_of(workflow(**place))).input_schema == ASKED


@pytest.mark.parametrize(
    "note",
    [
        pytest.param("just words", id="words"),
        pytest.param("{not json", id="brace"),
        pytest.param("```\nnot json\n```", id="block"),
        pytest.param("```python\n{}\n```", id="python"),
        pytest.param("[1, 2]", id="list"),
        pytest.param("```" + " " * 49_000 + "`", id="a fence that takes long to read"),
        pytest.param("```json\n[1]\n```", id="list in a block"),
        pytest.param('{"a":' * 9000, id="deep"),
        pytest.param("```json\n" + '{"a":' * 9000, id="deep block"),
    ],
)
async def test_a_note_without_a_schema_lets_any_object_in(note: str) -> None:
    assert (await spec_of(workflow(nodes=[sticky(note)]))).input_schema == ANYTHING


async def test_a_sample_in_a_note_gives_types_and_requires_nothing() -> None:
    sample = {"type": "string", "n": 1, "x": None, "on": True, "tags": ["a", "b"], "mix": [1, "b"], "deep": {"k": "v"}}
    spec = await spec_of(workflow(nodes=[sticky(f"```json\n{json.dumps(sample)}\n```")]))
    assert spec.input_schema == {
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "n": {"type": "number"},
            "x": {},
            "on": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "mix": {"type": "array"},
            "deep": {"type": "object", "properties": {"k": {"type": "string"}}},
        },
    }


async def test_the_words_of_a_note_are_the_description_without_its_blocks() -> None:
    note = f"Adds one.\x1b[31m\n\n```json\n{TOLD}\n```\n\n```json output\n{TOLD}\n```"
    spec = await spec_of(workflow(nodes=[sticky(note)]))
    assert spec.description == "Adds one. [31m"
    assert spec.output_schema == ASKED


async def test_what_the_operator_wrote_comes_first_and_the_rest_from_the_note() -> None:
    note = f"Words.\n```json\n{TOLD}\n```\n```json output\n{TOLD}\n```"
    tools = {"flow": {"description": "Mine.", "side_effects": "read", "output_schema": ANYTHING}}
    spec = await spec_of(workflow(nodes=[sticky(note)]), tools=tools)
    assert (spec.description, spec.side_effects) == ("Mine.", "read")
    assert (spec.input_schema, spec.output_schema) == (ASKED, ANYTHING)


@pytest.mark.parametrize(
    ("method", "item", "schema"),
    [
        ("POST", {"json": {"body": {"a": 1}, "query": {"b": "x"}}}, {"a": {"type": "number"}}),
        ("GET", {"json": {"body": {"a": 1}, "query": {"b": "x"}}}, {"b": {"type": "string"}}),
        ("POST", {"body": {"a": True}}, {"a": {"type": "boolean"}}),
    ],
    ids=["body", "query", "without a wrapper"],
)
async def test_a_pinned_call_is_a_sample(method: str, item: Any, schema: Any) -> None:
    spec = await spec_of(workflow(parameters={"httpMethod": method}, pinData={"Webhook": [item]}))
    assert spec.input_schema == {"type": "object", "properties": schema}


@pytest.mark.parametrize("pinned", [None, [], {"Webhook": []}, {"Webhook": [1]}, {"Webhook": [{"json": {"body": 3}}]}])
async def test_a_pin_that_is_no_call_says_nothing(pinned: Any) -> None:
    assert (await spec_of(workflow(pinData=pinned))).input_schema == ANYTHING


async def test_an_argument_of_the_path_is_required_beside_those_of_the_schema() -> None:
    spec = await spec_of(workflow("Flow", "user/:id", nodes=[sticky(TOLD)]))
    assert spec.input_schema["required"] == ["a", "id"]
    assert spec.input_schema["properties"]["id"] == {"anyOf": [{"type": "string"}, {"type": "number"}]}


async def test_a_workflow_calls_for_a_person_unless_the_operator_says_otherwise() -> None:
    spec = await spec_of(workflow(parameters={"httpMethod": "GET"}))
    assert (spec.side_effects, spec.replay, spec.safety.destructive) == ("external", "unsafe", None)
