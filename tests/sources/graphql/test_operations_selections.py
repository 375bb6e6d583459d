"""What is asked by default, and what an operator asks in its place."""

from pathlib import Path
from typing import Any

import pytest

from tests.sources.graphql.serving import found
from toolpost.schema.validator import compile_validator


async def query(folder: Path, sdl: str, **options: int) -> str:
    """What is asked of the query `q`, without its head."""
    tools, _ = await found(folder, f"type Query {{ q: T }} {sdl}", **options)
    return tools["q"].operation.selection


CYCLE = "type T { name: String, t: T, all: [T!]! }"


@pytest.mark.parametrize(
    ("depth", "asked"),
    [
        (0, "{ name }"),
        (1, "{ name all { name } t { name } }"),
        (2, "{ name all { name all { name } t { name } } t { name all { name } t { name } } }"),
    ],
)
async def test_values_are_asked_at_each_level_and_cycles_end_with_the_depth(
    tmp_path: Path, depth: int, asked: str
) -> None:
    assert await query(tmp_path, CYCLE, depth=depth) == asked


@pytest.mark.parametrize(
    ("sdl", "asked"),
    [
        ("type T { a: Int, b(c: Int!): Int, d(e: Int! = 1): Int, f(g: Int): Int }", "{ a d f }"),
        ("type T { a: Int, items(first: Int): [T], more(last: Int): T, ten(first: Int = 10): Int }", "{ a ten }"),
        ("type T { a: Int, items(limit: Int): [T], more(take: Int, skip: Int): [T] }", "{ a }"),
        ("type T { a: Int, b: Int @deprecated }", "{ a }"),
        (
            "type T { edges: [E], nodes: [N], pageInfo: P } type E { node: N } type N { a: Int } type P { b: Int }",
            "{ pageInfo { b } nodes { a } }",
        ),
        ("type T { edges: [E], pageInfo: P } type E { a: Int } type P { b: Int }", "{ pageInfo { b } edges { a } }"),
        ("type T { b(c: Int!): Int }", "{ __typename }"),
        ("type T { u: U } type U { b(c: Int!): Int }", "{ u { __typename } }"),
        ("type T { zip: Int, name: Int, id: Int }", "{ id name zip }"),
        ("interface T { a: Int } type U implements T { a: Int, b: Int }", "{ __typename a ... on U { b } }"),
        ("union T = U | V type U { a: Int } type V { b: Int }", "{ __typename ... on U { a } ... on V { b } }"),
        ("union T = U | V type U { a: Int } type V { a: Int! }", "{ __typename ... on U { a } ... on V { V_a: a } }"),
        (
            "union T = U | V type U { o: A } type V { o: B } type A { x: Int } type B { x: Int!, y: Int }",
            "{ __typename ... on U { o { x } } ... on V { o { B_x: x y } } }",
        ),
        ("interface T { a: Int }", "{ __typename a }"),
    ],
    ids=lambda text: text[:50],
)
async def test_the_default_asks_for_what_can_be_asked(tmp_path: Path, sdl: str, asked: str) -> None:
    assert await query(tmp_path, sdl) == asked


async def test_a_selection_stays_within_its_measure(tmp_path: Path) -> None:
    leaves = " ".join(f"l{number}: Int" for number in range(40))
    links = " ".join(f"t{number}: T" for number in range(40))
    asked = await query(tmp_path, f"type T {{ {leaves} {links} }}", depth=8)
    assert 250 < len(asked.replace("{", " ").replace("}", " ").split()) <= 300


async def test_what_tells_of_more_and_of_failure_is_not_crowded_out(tmp_path: Path) -> None:
    leaves = " ".join(f"l{number}: Int" for number in range(297))
    sdl = f"type T {{ big: Big, userErrors: [E!]!, pageInfo: P }} type Big {{ {leaves} }}"
    asked = await query(tmp_path, f"{sdl} type E {{ message: String }} type P {{ endCursor: String }}")
    assert asked == "{ pageInfo { endCursor } userErrors { message } }"


@pytest.mark.slow
async def test_many_members_share_the_room(tmp_path: Path) -> None:
    leaves = " ".join(f"l{number}: Int" for number in range(100))
    members = " ".join(f"type M{number} {{ {leaves} }}" for number in range(50))
    union = " | ".join(f"M{number}" for number in range(50))
    asked = await query(tmp_path, f"union T = {union} {members}")
    assert asked.count("... on ") == 20
    assert asked.count(" l0 ") == 20
    assert asked.count(" l") <= 300


SDL = """
type Query { user(id: ID): User, pick(selection: String): User }
type Mutation { user(name: String): User }
type User { id: ID!, name: String, friends(first: Int!): [User!]! }
"""


async def test_an_operator_says_what_is_asked(tmp_path: Path) -> None:
    written = "{ name pals: friends(first: 3) { id } ... on User { id @skip(if: false) } }"
    tools, problems = await found(tmp_path, SDL, selections={"user": written, "user_mutation": "name"})
    tool = tools["user"]
    assert " ".join(tool.operation.query.split()) == f"query user($id: ID) {{ user(id: $id) {written} }}"
    assert tool.spec.output_schema is not None
    assert tool.spec.output_schema["properties"].keys() == {"name", "pals", "id"}
    assert tools["user_mutation"].operation.selection == "{\n  name\n}"
    assert problems == []


ANIMALS = """
type Query { pets: [Pet!]! }
union Pet = Dog | Cat | Fish
interface Furry { fur: String }
type Dog implements Furry { fur: String, barks: Int! }
type Cat implements Furry { fur: String, owner: Person }
type Fish { scales: Int }
type Person { name: String! }
"""
WRITTEN = "{ __typename ... on Furry { fur } ... on Cat { owner { __typename } owner { name } } ... { __typename } }"


@pytest.mark.parametrize(
    ("pet", "fits"),
    [
        ({"__typename": "Dog", "fur": "brown"}, True),
        ({"__typename": "Cat", "fur": None, "owner": {"__typename": "Person", "name": "Ann"}}, True),
        ({"__typename": "Fish"}, True),
        ({"__typename": "Dog", "fur": 7}, False),
        ({"__typename": 7}, False),
    ],
    ids=str,
)
async def test_what_an_operator_asks_of_some_types_is_checked_for_those(
    tmp_path: Path, pet: dict[str, Any], *, fits: bool
) -> None:
    tools, problems = await found(tmp_path, ANIMALS, selections={"pets": WRITTEN})
    assert problems == []
    schema = tools["pets"].spec.output_schema
    assert schema is not None
    assert compile_validator(schema).is_valid([pet]) is fits


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{ nam }", "Cannot query field 'nam' on type 'User'"),
        ("{ friends { id } }", "of type 'Int!' is required"),
        ("{ name", "Syntax Error"),
        ("{ id } } { x", "Syntax Error"),
        ("query Q { id }", "Cannot query field 'query'"),
        ("{ id } { id }", "one selection in braces"),
        ("{ name: id }", "the alias 'name' is the name of another field of 'User'"),
        ("{ __typename: id }", "the alias '__typename'"),
        ("{ id " + " " * 20_000 + "}", "longer than 20000 characters"),
    ],
    ids=lambda text: text[:30],
)
async def test_a_selection_that_does_not_hold_leaves_its_tool_out(tmp_path: Path, text: str, told: str) -> None:
    tools, [problem] = await found(tmp_path, SDL, selections={"user": text})
    assert set(tools) == {"pick", "user_mutation"}
    assert "query 'user' was skipped" in problem
    assert told in problem


async def test_a_selection_for_a_field_that_is_not_there_is_reported(tmp_path: Path) -> None:
    _, [problem] = await found(tmp_path, SDL, selections={"usr": "{ id }"})
    assert "options.selections names 'usr'" in problem


async def test_an_argument_of_the_schema_keeps_its_name_and_meaning(tmp_path: Path) -> None:
    tools, _ = await found(tmp_path, SDL)
    assert tools["pick"].operation.selection_argument is None
    assert tools["pick"].spec.input_schema["properties"]["selection"] == {
        "anyOf": [{"type": "string"}, {"type": "null"}]
    }
    about = tools["user"].spec.input_schema["properties"]["selection"]["description"]
    assert about.endswith("By default: { id name } Others: friends")
