"""Which schemas may be registered."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.contracts.errors import ToolSchemaError
from toolpost.schema.schema_checks import check_schema
from toolpost.schema.schema_weight import weigh
from toolpost.schema.small_schemas import is_small_schema
from toolpost.schema.subschemas import SchemaDocument


def refusal(schema: Any, **options: Any) -> str:
    with pytest.raises(ToolSchemaError) as caught:
        check_schema(schema, tool_name="t.x", **options)
    assert caught.value.tool_name == "t.x"
    return str(caught.value)


def nested(levels: int, leaf: Any) -> Any:
    for _ in range(levels):
        leaf = {"not": leaf}
    return leaf


def bomb(keyword: str, levels: int) -> dict[str, Any]:
    """Each definition refers to the next twice."""
    doubled = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**doubled, f"d{levels}": {"type": "object", "required": ["x"]}}}


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object"},
        {"type": ["object", "null"]},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}},
        {"properties": {"a": {"$ref": "#"}}},
        {"properties": {"a": {"$ref": "#name"}}, "$defs": {"x": {"$anchor": "name"}}},
        {"$id": "https://x.test/a", "properties": {"a": {"$ref": "b"}}, "$defs": {"b": {"$id": "b"}}},
        {"properties": {"a": {"$ref": "#/x-parts/0"}}, "x-parts": [{"type": "string"}]},
        {"properties": {"a": {"$ref": "#/$defs/a~1b%20c"}}, "$defs": {"a/b c": {}}},
        {"properties": {"$ref": {"type": "string"}, "a": {"default": {"$ref": "https://x.test"}}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"items": [{}]}}},
        {"$schema": "https://spec.openapis.org/oas/3.1/dialect/base", "type": "object"},
    ],
)
def test_a_sound_schema_passes(schema: Any) -> None:
    check_schema(schema, tool_name="t.x")


@pytest.mark.parametrize(
    ("schema", "where", "problem"),
    [
        ("text", "#", "must be an object or a boolean, not str"),
        ({"type": "string"}, "#/type", 'must be "object"'),
        ({"properties": {"a": {"type": "nope"}}}, "#/properties/a/type", "nope"),
        ({"properties": {"a": {"minLength": -1}}}, "#/properties/a/minLength", "-1"),
        ({"properties": {"a": {"default": object()}}}, "#/properties/a/default", "object is not JSON"),
        ({"properties": {1: {}}}, "#", "key"),
        ({"properties": {"a": {"$ref": "https://x.test/s.json"}}}, "#/properties/a", "never fetched; put its target"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "#/properties/a", "leaves the document"),
        ({"properties": {"a": {"$ref": "other.json#/a"}}}, "#/properties/a", "leaves the document"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "#/properties/a", "points at nothing"),
        ({"properties": {"a": {"$ref": "#/type/x"}}, "type": "object"}, "#/properties/a", "points at nothing"),
        ({"properties": {"a": {"$ref": "#none"}}}, "#/properties/a", "points at nothing"),
        (nested(70, {}), "#/not/not", "deeper than 64 levels"),
        ({"enum": [0] * 100_001}, "#", "more than 100,000 values"),
    ],
)  # fmt: skip
def test_an_unsound_schema_is_refused_with_the_place_and_the_problem(schema: Any, where: str, problem: str) -> None:
    message = refusal(schema)

    assert f"Schema of tool 't.x' at {where}" in message
    assert problem in message


def test_an_output_may_be_of_any_type() -> None:
    check_schema({"type": "string"}, tool_name="t.x", role="output")


def test_an_unknown_dialect_is_not_looked_up_in_the_network(unvisited: str) -> None:
    check_schema({"$schema": f"http://{unvisited}/never", "type": "object"}, tool_name="t.x")
    refusal({"properties": {"a": {"$id": "b", "$schema": f"http://{unvisited}/x", "$ref": f"http://{unvisited}/y"}}})


def test_a_schema_that_contains_itself_is_refused() -> None:
    ring: dict[str, Any] = {}
    ring["not"] = ring

    assert "deeper than 64" in refusal(ring)


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_composition_that_explodes_is_refused(keyword: str) -> None:
    check_schema(bomb(keyword, 15), tool_name="t.x")

    assert "expands to more than 1,000,000 schemas" in refusal(bomb(keyword, 40))


def test_a_bomb_in_an_embedded_document_is_found() -> None:
    inner = {"$id": "https://x.test/inner", **bomb("anyOf", 40)}

    assert "expands to" in refusal({"properties": {"a": inner}})


def test_a_bomb_under_properties_is_found() -> None:
    doubled = {f"d{n}": {"anyOf": [{"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}}] * 2} for n in range(40)}

    assert "expands to" in refusal({"$ref": "#/$defs/d0", "$defs": {**doubled, "d40": {}}})


def test_many_properties_of_one_type_are_no_bomb() -> None:
    wide = {f"d{n}": {"properties": {key: {"$ref": f"#/$defs/d{n + 1}"} for key in ("a", "b", "c")}} for n in range(30)}

    check_schema({"$ref": "#/$defs/d0", "$defs": {**wide, "d30": {}}}, tool_name="t.x")


def test_recursion_counts_once() -> None:
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "anyOf": [{"$ref": "#"}, {"type": "object"}]}

    check_schema(tree, tool_name="t.x")

    assert weigh(SchemaDocument(tree)).recursive


def test_a_long_chain_of_references_is_refused() -> None:
    chain = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}]} for n in range(3_000)}

    assert "chain of more than 100 schemas" in refusal({"$ref": "#/$defs/d0", "$defs": {**chain, "d3000": {}}})


def test_thousands_of_tools_are_checked_quickly() -> None:
    schema = {
        "type": "object",
        "properties": {f"p{n}": {"type": "string", "description": "words"} for n in range(6)},
        "required": ["p0"],
        "additionalProperties": False,
    }
    started = time.process_time()

    for number in range(2_000):
        check_schema(schema, tool_name=f"t.{number}")

    assert time.process_time() - started < 20


DEEP: dict[str, Any] = {}
for _ in range(70):
    DEEP = {"items": DEEP}
POINT = {"type": "object", "properties": {"x": {"type": "number"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}, "required": ["a"]},
        {"type": "object", "properties": {"at": {"$ref": "#/$defs/Point"}}, "$defs": {"Point": POINT}},
    ],
)
def test_ordinary_schemas_are_plain(schema: dict[str, Any]) -> None:
    assert is_small_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/Missing"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/properties/a", "properties": {"a": {}}},
        {"$id": "https://example.com/a"},
        {"$anchor": "a"},
        {"default": float("nan")},
        {"default": object()},
        {"properties": {str(n): {"a": {}} for n in range(2100)}},
        {"description": "x" * 150_000},
        {"allOf": [{"not": {}} for _ in range(81)]},
        DEEP,
        {"allOf": [{"$ref": "#/$defs/A"}] * 13, "$defs": {"A": {}}},
    ],
)
def test_what_needs_a_closer_look_is_not_plain(schema: dict[str, Any]) -> None:
    assert not is_small_schema(schema)


names = st.sampled_from(["A", "B", "C", "D"])
references = names.map(lambda name: {"$ref": f"#/$defs/{name}"})
parts = st.recursive(
    references | st.just({}),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda many: {"allOf": many} if many else {})
        | inner.map(lambda one: {"items": one})
    ),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries({"$defs": st.dictionaries(names, parts), "allOf": st.lists(parts, min_size=1, max_size=3)})
)
def test_no_plain_schema_would_fail_the_full_check(schema: dict[str, Any]) -> None:
    if not is_small_schema(schema):
        return
    forced = {**schema, "$anchor": "looked-at-closely"}
    assert not is_small_schema(forced)
    try:
        check_schema(forced, tool_name="t")
    except ToolSchemaError as error:
        raise AssertionError(schema) from error
