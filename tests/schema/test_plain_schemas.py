"""Schemas that one quick check shows to be harmless, and that the full checks would not find fault with."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from toolpost.schema.hidden_text import find_hidden
from toolpost.schema.plain_schemas import is_plain_schema
from toolpost.schema.schema_checks import check_schema
from toolpost.schema.validator import unchecked_patterns


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "string", "description": "One\nor two", "minLength": 1}}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"], "default": None, "title": "Größe"}}},
        {"properties": {"a": {"anyOf": [{"type": "integer", "minimum": -1}, {"type": "null"}], "default": 2.5}}},
        {"properties": {"a": {"type": "array", "items": {"enum": ["x", 1, None]}, "default": []}}},
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "object", "required": ["b"]}}},
        {"type": "object", "additionalProperties": {"type": "number"}, "required": []},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": False},
    ],
)
def test_everyday_schemas_are_plain(schema: dict[str, Any]) -> None:
    assert is_plain_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": ["object", "null"]},
        {"type": "object", "properties": {"a": {"type": "text"}}},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": []},
        {"type": "object", "required": ["a", "a"]},
        {"properties": {"a": {"minLength": -1}}},
        {"properties": {"a": {"type": []}}},
        {"properties": {"a": {"anyOf": []}}},
        {"properties": {"a": {"type": "string", "pattern": "a+"}}},
        {"patternProperties": {"a+": {}}},
        {"properties": {"a": {"$ref": "#/$defs/Missing"}}},
        {"properties": {"a": {"$ref": "#/properties/b"}, "b": {}}},
        {"properties": {"a": {"$ref": "https://x.test/schema"}}},
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": True}},
        {"allOf": [{"$ref": "#/$defs/A"}] * 13, "$defs": {"A": {}}},
        {"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}},
        {"$schema": "https://x.test/dialect"},
        {"$id": "https://x.test/a"},
        {"x-own": 1},
        {"description": "Sum\u200bup"},
        {"properties": {"na\u202eme": {}}},
        {"properties": {"a": {"enum": ["\x00"]}}},
        {"description": "\ud800"},
        {"description": "x" * 6_000},
        {"properties": {"a": {"default": float("nan")}}},
        {"properties": {"a": {"default": 2**70}}},
        {"properties": {"a": {"default": datetime.now(UTC)}}},
        {"properties": {"a": {"default": {"b": 1}}}},
        {"properties": {1: {}}},
        {"items": {"items": {"items": {"items": {"items": {"items": {"items": {}}}}}}}},
    ],
)
def test_what_needs_a_closer_look_is_not_plain(schema: dict[str, Any]) -> None:
    assert not is_plain_schema(schema)


def test_a_schema_that_contains_itself_is_not_plain() -> None:
    schema: dict[str, Any] = {"type": "object"}
    schema["additionalProperties"] = schema

    assert not is_plain_schema(schema)


NAMES = st.sampled_from(["A", "B", "C", "D"])
TEXTS = st.sampled_from(["", "a", "One\ntwo", "Größe", '"$ref":"#/$defs/A"'])
NUMBERS = st.sampled_from([0, 1, 7, 2.0, 0.5, -3.25])
SCALARS = TEXTS | NUMBERS | st.booleans() | st.none()
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "object", "array", "null"])
FITTING: dict[str, st.SearchStrategy[Any]] = {
    "type": TYPES | st.lists(TYPES, min_size=1, max_size=3),
    **dict.fromkeys(("title", "description", "format"), TEXTS),
    **dict.fromkeys(("default", "const"), SCALARS | st.sampled_from([[], {}, [1, "a"]])),
    **dict.fromkeys(("enum", "examples"), st.lists(SCALARS, max_size=3)),
    "required": st.lists(NAMES, max_size=3),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), NUMBERS),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), st.integers(0, 3)),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), st.booleans()),
    "$ref": NAMES.map(lambda name: f"#/$defs/{name}"),
}
HOLDERS = ("properties", "additionalProperties", "items", "anyOf", "oneOf", "allOf")
ODD = st.tuples(
    st.sampled_from([*FITTING, *HOLDERS, "$defs", "$schema", "pattern", "multipleOf", "not", "x-own"]),
    SCALARS
    | st.sampled_from(
        [-1, 2**63, "o\u200bk", "\x7f", "a+", "#/properties/A", [{}], [[]], [1, 1], {"A": 1}, {"o\u200bk": {}}]
    ),
)


def _members(options: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.one_of([st.tuples(st.just(keyword), values) for keyword, values in options.items()])


def _schemas_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of a few keywords, with these schemas within."""
    several = st.lists(inner, min_size=1, max_size=2)
    holders: dict[str, st.SearchStrategy[Any]] = {
        "properties": st.dictionaries(NAMES, inner, max_size=3),
        "additionalProperties": inner | st.booleans(),
        "items": inner,
        **dict.fromkeys(("anyOf", "oneOf", "allOf"), several),
    }
    return st.lists(_members(holders) | _members(FITTING), max_size=4).map(dict)


PARTS = st.recursive(st.lists(_members(FITTING), max_size=3).map(dict), _schemas_of, max_leaves=4)
DRAFTS = ("https://json-schema.org/draft/2019-09/schema", "http://json-schema.org/draft-07/schema#")
ROOTS = st.builds(
    lambda schema, definitions, draft, odd: {**schema, **definitions, **draft, **dict(odd), "type": "object"},
    _schemas_of(PARTS),
    st.fixed_dictionaries({}, optional={"$defs": st.fixed_dictionaries(dict.fromkeys("ABCD", PARTS))}),
    st.fixed_dictionaries({}, optional={"$schema": st.sampled_from(DRAFTS)}),
    st.lists(ODD, max_size=1),
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(ROOTS)
def test_the_full_checks_find_nothing_wrong_with_a_plain_schema(schema: dict[str, Any]) -> None:
    plain = is_plain_schema(schema)
    event(f"plain: {plain}")
    if not plain:
        return

    jsonschema_rs.meta.validate(schema)
    assert not find_hidden(schema)
    assert not unchecked_patterns(schema)
    forced = {**schema, "$anchor": "looked-at-closely"}
    assert not is_plain_schema(forced)
    check_schema(forced, tool_name="t")
