"""What tools take and give, as JSON Schema."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sources.graphql.serving import found
from toolpost.schema.validator import compile_validator

NULL = {"type": "null"}


async def arguments(folder: Path, written: str, types: str = "") -> dict[str, Any]:
    """The input schema of a query with these arguments."""
    tools, _ = await found(folder, f"type Query {{ q({written}): Int }} {types}")
    return tools["q"].spec.input_schema


@pytest.mark.parametrize(
    ("written", "schema"),
    [
        ("Int", {"anyOf": [{"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}, NULL]}),
        ("Int!", {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}),
        ("Float!", {"type": "number"}),
        ("String!", {"type": "string"}),
        ("Boolean", {"anyOf": [{"type": "boolean"}, NULL]}),
        ("ID!", {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ("[ID!]!", {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}),
        ("[String]", {"anyOf": [{"type": "array", "items": {"anyOf": [{"type": "string"}, NULL]}}, NULL]}),
        ('String! = "x"', {"type": "string", "default": "x"}),
        ("[Boolean!] = [true]", {"anyOf": [{"type": "array", "items": {"type": "boolean"}}, NULL], "default": [True]}),
        ("Date", {"description": "Date: An ISO date."}),
        ("Json!", {"description": "Json: any value"}),
        ("Mode!", {"$ref": "#/$defs/Mode"}),
        ("Mode = ON", {"anyOf": [{"$ref": "#/$defs/Mode"}, NULL], "default": "ON"}),
        ('String @deprecated(reason: "old")', {"anyOf": [{"type": "string"}, NULL], "deprecated": True}),
    ],
)
async def test_an_argument_has_the_schema_of_its_type(tmp_path: Path, written: str, schema: Any) -> None:
    types = 'enum Mode { ON OFF } "An ISO date." scalar Date scalar Json'
    given = await arguments(tmp_path, f"a: {written}", types)
    assert given["properties"]["a"] == schema
    assert given["required"] == (["a"] if written.endswith("!") else [])
    assert given["additionalProperties"] is False


async def test_an_argument_says_what_it_and_its_type_are_for(tmp_path: Path) -> None:
    given = await arguments(tmp_path, '"When it was." a: Date', '"An ISO date." scalar Date')
    assert given["properties"]["a"] == {"description": "When it was. Date: An ISO date."}


INPUTS = """
"A tree." input Tree { name: String!, size: Int = 3, left: Tree, right: [Tree!] }
input Key @oneOf { id: ID, name: String, mode: Mode }
enum Mode { ON OFF }
input Unused { a: Int }
"""


async def test_only_the_types_that_are_reached_are_defined(tmp_path: Path) -> None:
    tree = await arguments(tmp_path, "t: Tree!", INPUTS)
    key = await arguments(tmp_path, "k: Key!", INPUTS)
    assert list(tree["$defs"]) == ["Tree"]
    assert list(key["$defs"]) == ["Key", "Mode"]
    assert tree["$defs"]["Tree"]["description"] == "A tree."
    assert "$defs" not in await arguments(tmp_path, "a: Int", INPUTS)


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({"t": {"name": "a"}}, True),
        ({"t": {"name": "a", "left": {"name": "b", "right": [{"name": "c"}]}}}, True),
        ({"t": {"name": "a", "left": None, "size": None}}, True),
        ({"t": {"name": "a", "left": {"size": 1}}}, False),
        ({"t": {"name": "a", "other": 1}}, False),
        ({"t": {"name": None}}, False),
        ({"t": {"name": "a", "size": 2**31}}, False),
        ({"t": {"name": "a"}, "k": {"id": 1}}, True),
        ({"t": {"name": "a"}, "k": {"mode": "ON"}}, True),
        ({"t": {"name": "a"}, "k": None}, True),
        ({"t": {"name": "a"}, "k": {}}, False),
        ({"t": {"name": "a"}, "k": {"id": 1, "name": "x"}}, False),
        ({"t": {"name": "a"}, "k": {"id": None}}, False),
        ({"t": {"name": "a"}, "k": {"mode": "on"}}, False),
        ({}, False),
    ],
    ids=str,
)
async def test_input_objects_take_what_the_server_takes(tmp_path: Path, given: Any, *, fits: bool) -> None:
    validator = compile_validator(await arguments(tmp_path, "t: Tree!, k: Key", INPUTS))
    assert validator.is_valid(given) is fits


async def test_where_everything_leads_to_everything_only_what_is_near_is_spelled_out(tmp_path: Path) -> None:
    parts = " ".join(f"f{number}: I{number}" for number in range(100))
    types = " ".join(f"input I{number} {{ n: Int! {parts} }}" for number in range(100))
    schema = await arguments(tmp_path, "a: I0!", types)
    assert len(str(schema)) < 60_000
    validator = compile_validator(schema)
    assert validator.is_valid({"a": {"n": 1, "f77": {"anything": 1}}})
    assert not validator.is_valid({"a": {"n": 1, "f1": {"n": "one"}}})


def many(name: str, number: int, kind: str) -> str:
    """An input of so many fields, each with a few words about it."""
    return f"input {name} {{ {' '.join(f'{WORDS} f{at}: {kind}' for at in range(number))} }}"


WORDS = '"What it is for, in as many words as people like to write about such things."'


@pytest.mark.parametrize(
    ("types", "spelled"),
    [
        (f"{many('A', 120, 'B')} {many('B', 60, 'Int')}", {"A"}),
        (f"input A {{ b: B, c: C, d: B }} {many('B', 60, 'C')} {many('C', 60, 'A')} {many('D', 99, 'C')}", {"A", "B"}),
        (f"{many('A', 400, 'B')} enum B {{ X Y }}", set[str]()),
    ],
    ids=["wide", "deep", "far too wide"],
)
async def test_a_model_is_shown_as_much_of_a_large_schema_as_it_should_read(
    tmp_path: Path, types: str, spelled: set[str]
) -> None:
    tools, _ = await found(tmp_path, f"type Query {{ q({WORDS} a: A!): Q }} type Q {{ b: Int }} {types}")
    spec = tools["q"].spec
    assert spec.model_schema is not None
    assert len(json.dumps(spec.model_schema)) <= 16_000
    assert spec.model_schema["properties"].keys() == {"a", "selection"}
    assert spec.model_schema["properties"]["a"]["description"].startswith("What it is for")
    assert spelled <= {name for name, inner in spec.model_schema["$defs"].items() if "properties" in inner}
    compile_validator(spec.model_schema)


async def test_a_schema_that_a_model_can_read_is_shown_whole(tmp_path: Path) -> None:
    tools, _ = await found(tmp_path, f"type Query {{ q(t: Tree, k: Key): Int }} {INPUTS}")
    assert tools["q"].spec.model_schema is None


GIVES = """
type Query { user: User!, users: [User!], node: Node, things: [Thing!]!, mode: Mode, at: Date }
interface Node { id: ID! }
type User implements Node { id: ID!, name: String, age: Int!, tags: [String!]!, boss: User, at: Date }
type Robot implements Node { id: ID!, serial: Int! }
union Thing = User | Robot
enum Mode { ON }
scalar Date
"""


async def test_what_a_tool_gives_follows_from_what_it_asks_for(tmp_path: Path) -> None:
    tools, _ = await found(tmp_path, GIVES, depth=1)
    user = {
        "id": {"type": ["string", "integer"]},
        "name": {"type": ["string", "null"]},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "at": {},
    }
    boss = {"type": ["object", "null"], "properties": user}
    gives = {name: tool.spec.output_schema for name, tool in tools.items()}
    assert gives["user"] == {"type": "object", "properties": {**user, "boss": boss}}
    assert gives["users"] == {"type": ["array", "null"], "items": gives["user"]}
    assert gives["mode"] == {"type": ["string", "null"]}
    assert gives["at"] == {}


@pytest.mark.parametrize(
    ("tool", "value", "fits"),
    [
        ("node", None, True),
        ("node", {"__typename": "Robot", "id": "1", "serial": 7}, True),
        ("node", {"__typename": "Robot", "id": "1", "serial": "7"}, False),
        ("node", {"__typename": "Robot", "serial": None}, False),
        ("node", {"__typename": "User", "id": None}, False),
        ("node", {"__typename": "Newcomer", "id": "1", "anything": 1}, True),
        ("things", [{"__typename": "User", "age": 3}, {"__typename": "Robot", "serial": 1}], True),
        ("things", [None], False),
        ("things", None, False),
        ("user", {"name": "Ann"}, True),
    ],
    ids=str,
)
async def test_answers_are_distinguished_by_type(tmp_path: Path, tool: str, value: Any, *, fits: bool) -> None:
    tools, _ = await found(tmp_path, GIVES)
    schema = tools[tool].spec.output_schema
    assert schema is not None
    assert compile_validator(schema).is_valid(value) is fits


async def test_a_tool_is_described_by_its_schema(tmp_path: Path) -> None:
    sdl = """type Query { "Says hello." a: Int  b: Int @deprecated(reason: "use a")  c: [Int!] }"""
    tools, _ = await found(tmp_path, sdl)
    assert tools["a"].spec.description == "Says hello."
    assert tools["b"].spec.description.startswith("Deprecated: use a")
    assert tools["b"].spec.deprecated
    assert tools["c"].spec.description == "The query 'c', which returns [Int!]."


async def test_a_mutation_gives_way_to_a_query_of_its_name(tmp_path: Path) -> None:
    sdl = """
    type Query { a: Int, b_mutation: Int, b: Int }
    type Mutation { a: Int, a_mutation: Int, b: Int, deleteAll: Int, Remove_it: Int, itemDelete: Int, undeleted: Int }
    """
    tools, _ = await found(tmp_path, sdl)
    assert {name: (tool.operation.kind, tool.operation.name) for name, tool in tools.items()} == {
        "a": ("query", "a"),
        "b_mutation": ("query", "b_mutation"),
        "b": ("query", "b"),
        "a_mutation_mutation": ("mutation", "a"),
        "a_mutation": ("mutation", "a_mutation"),
        "b_mutation_mutation": ("mutation", "b"),
        "deleteAll": ("mutation", "deleteAll"),
        "Remove_it": ("mutation", "Remove_it"),
        "itemDelete": ("mutation", "itemDelete"),
        "undeleted": ("mutation", "undeleted"),
    }
    destructive = {name for name, tool in tools.items() if tool.spec.safety.destructive}
    assert destructive == {"deleteAll", "Remove_it", "itemDelete"}
