"""The quick look that spares most schemas a full check, and never says yes where that would say no."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.errors import ToolSchemaError
from toolpost.schema.schema_checks import check_schema, is_small_schema

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
