"""Schemas of every version as JSON Schema 2020-12, closed in themselves."""

from typing import Any

import pytest

from tests.specs import api_of, operation_of, own_api
from toolpost.schema.schema_checks import check_schema
from toolpost.schema.validator import compile_validator
from toolpost.sources.openapi.spec import input_schema, output_schema


async def read(schema: Any, version: str = "3.0.3", **schemas: Any) -> Any:
    """The schema of a parameter, as it is read."""
    operation = await operation_of(
        {"parameters": [{"name": "p", "in": "query", "schema": schema}]},
        openapi=version,
        components={"schemas": schemas},
    )
    return operation.parameters[0].schema


async def sent(schema: Any, version: str = "3.1.0", **schemas: Any) -> Any:
    """The schema of the arguments of an operation that sends such a body."""
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    operation = await operation_of(
        {"requestBody": body}, method="post", openapi=version, components={"schemas": schemas}
    )
    return input_schema(operation)


def takes(schema: Any, body: Any) -> bool:
    check_schema(schema, tool_name="t")
    return compile_validator(schema).is_valid({"body": body})


@pytest.mark.req("DEF-06")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "string", "nullable": True}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (
            {"type": "string", "enum": ["a", None], "nullable": True},
            {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]},
        ),
        ({"type": ["integer", "null"], "minimum": 1}, {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        (
            {"nullable": True, "description": "d", "allOf": [{"type": "string"}]},
            {"description": "d", "anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]},
        ),
        ({"nullable": True}, {}),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 1}),
        ({"maximum": 9, "exclusiveMaximum": False}, {"maximum": 9}),
        ({"type": "string", "example": "x"}, {"type": "string", "examples": ["x"]}),
        ({"type": "object", "example": {"a": 1}}, {"type": "object"}),
        ({"type": "file"}, {"type": "string", "format": "binary"}),
        (
            {"type": "array", "items": [{"type": "string"}, {}]},
            {"type": "array", "prefixItems": [{"type": "string"}, {}]},
        ),
        ({"items": [{}], "additionalItems": False}, {"prefixItems": [{}], "items": False}),
        ({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, None),
        ({"x-more": 1, "xml": {}, "externalDocs": {}, "type": "string"}, {"type": "string"}),
    ],
)
async def test_keywords_of_older_drafts_are_translated(old: Any, new: Any) -> None:
    if new is None:
        new = {"dependentSchemas": {"c": {"required": ["d"]}}, "dependentRequired": {"a": ["b"]}}

    assert await read(old) == new


@pytest.mark.req("MISC-02")
@pytest.mark.parametrize(
    ("sloppy", "clean"),
    [
        ({"type": "int"}, {"type": "integer"}),
        ({"type": "whatever"}, {}),
        ({"type": ["string", "string", 5, "any"]}, {"type": "string"}),
        ({"required": True, "enum": [], "allOf": [], "properties": []}, {"properties": {}}),
        ({"required": ["a", "a", 5]}, {"required": ["a"]}),
        (
            {"minLength": "3", "maxLength": -1, "multipleOf": 0, "minimum": "x", "maximum": "2.5"},
            {"minLength": 3, "maximum": 2.5},
        ),
        (
            {"deprecated": "true", "uniqueItems": 1, "description": 5, "title": None},
            {"deprecated": True, "description": "5"},
        ),
        ({"type": "string", "enum": [1, True, "a"]}, {"type": "string", "enum": ["1", "true", "a"]}),
        ({"type": "integer", "enum": ["1", "x"]}, {"type": "integer", "enum": [1, "x"]}),
        ({"not": None, "items": None, "additionalProperties": "yes"}, {"items": {}}),
        ({"properties": {"a": None, "b": 5, "c": True}}, {"properties": {"a": {}, "b": {}, "c": True}}),
        ({"format": 5, "default": {"$ref": "data"}, "pattern": 7}, {"default": {"$ref": "data"}}),
        (5, {}),
        (None, {}),
        (True, True),
    ],
)
async def test_what_makes_no_sense_is_left_out_and_nothing_crashes(sloppy: Any, clean: Any) -> None:
    assert await read(sloppy) == clean


async def test_a_reference_becomes_a_definition_however_it_is_written() -> None:
    schemas: dict[str, Any] = {"A b": {"type": "string"}, "Box": {"properties": {"in": {"type": "integer"}}}}
    schema = await sent(
        {
            "properties": {
                "one": {"$ref": "#/components/schemas/A%20b"},
                "two": {"$ref": "#/components/schemas/A b"},
                "three": {"$ref": "#/components/schemas/Box/properties/in"},
                "four": {"$ref": "Box"},
            }
        },
        **schemas,
    )

    assert [inner["$ref"] for inner in schema["properties"]["body"]["properties"].values()] == [
        "#/$defs/A_b",
        "#/$defs/A_b",
        "#/$defs/in",
        "#/$defs/Box",
    ]
    assert list(schema["$defs"]) == ["A_b", "Box", "in"]


@pytest.mark.req("MISC-02", "DEF-06")
async def test_recursion_stays_recursion() -> None:
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}}}
    schema = await sent({"$ref": "#/components/schemas/Tree"}, Tree=tree)

    assert list(schema["$defs"]) == ["Tree"]
    assert takes(schema, {"kids": [{"kids": []}]})
    assert not takes(schema, {"kids": [{"kids": 5}]})


@pytest.mark.parametrize(
    "schemas",
    [
        {"A": {"$ref": "#/components/schemas/A"}},
        {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}},
        {"A": {"$ref": "#/components/schemas/A/properties/x"}},
        {"A": {"$ref": "#/components/schemas/A/x", "x": 1}},
        {"A": {"allOf": [{"$ref": "#/components/schemas/A"}]}},
    ],
)
async def test_references_in_a_circle_end(schemas: dict[str, Any]) -> None:
    assert takes(await sent({"$ref": "#/components/schemas/A"}, **schemas), {"any": "thing"})


async def test_what_stands_beside_a_reference_counts_from_3_1_on() -> None:
    beside = {"$ref": "#/components/schemas/A", "description": "mine", "maxLength": 3, "nullable": True}
    newer = await read(beside, "3.1.0", A={"type": "string"})
    older = await read(beside, "3.0.3", A={"type": "string"})

    assert newer == {"description": "mine", "anyOf": [{"$ref": "#/$defs/A", "maxLength": 3}, {"type": "null"}]}
    assert older == {"description": "mine", "anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}


async def test_a_reference_to_nothing_takes_anything_and_is_reported() -> None:
    api = await api_of(
        {"paths": {"/a": {"get": {"parameters": [{"name": "p", "in": "query", "schema": {"$ref": "#/nope"}}]}}}}
    )

    assert api.operations[0].parameters[0].schema == {}
    assert "'#/nope' does not lead to a schema" in api.problems[0]


async def test_ids_and_anchors_of_newer_schemas_are_followed() -> None:
    schemas: dict[str, Any] = {
        "Pet": {
            "$id": "https://schemas.example/pet",
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "properties": {
                "tag": {"$ref": "#tag"},
                "kind": {"$ref": "#/$defs/kind"},
                "own": {"$ref": "#/components/schemas/Own"},
            },
            "$defs": {"tag": {"$anchor": "tag", "type": "string"}, "kind": {"enum": ["cat"]}},
        },
        "Own": {"$ref": "https://schemas.example/pet"},
    }
    schema = await sent({"$ref": "https://schemas.example/pet"}, **schemas)

    assert set(schema["$defs"]) == {"pet", "tag", "kind"}
    assert "$id" not in str(schema)
    assert takes(schema, {"tag": "x", "kind": "cat", "own": {"kind": "cat"}})
    assert not takes(schema, {"own": {"kind": "dog"}})


async def test_what_is_read_only_is_not_sent_and_what_is_write_only_does_not_come_back() -> None:
    put = next(one for one in (await own_api("shop.yaml")).operations if one.method == "PUT")
    get = next(one for one in (await own_api("shop.yaml")).operations if one.method == "GET")

    taken, given = input_schema(put)["$defs"]["Thing"], (output_schema(get) or {})["$defs"]["Thing"]

    assert (list(taken["properties"]), taken["required"]) == (["name", "secret", "parts", "maker"], ["name"])
    assert (list(given["properties"]), given["required"]) == (["id", "name", "parts", "maker"], ["id", "name"])


async def test_read_only_properties_are_found_behind_references_and_compositions() -> None:
    schemas: dict[str, Any] = {
        "Id": {"type": "string", "readOnly": True},
        "Base": {"properties": {"id": {"$ref": "#/components/schemas/Id"}, "name": {}}},
    }
    whole = {"allOf": [{"$ref": "#/components/schemas/Base"}, {"required": ["id", "name"]}], "required": ["id"]}
    schema = await sent(whole, **schemas)

    assert takes(schema, {"name": "x"})
    assert not takes(schema, {})


async def test_what_is_asked_for_and_forbidden_at_once_is_no_longer_asked_for() -> None:
    schema = await sent(
        {"type": "object", "properties": {"a": {}}, "required": ["a", "b"], "additionalProperties": False}
    )

    assert takes(schema, {"a": 1})
    assert not takes(schema, {})


async def test_a_flag_is_reported_from_a_property_of_its_name() -> None:
    schema = await sent(
        {"properties": {"readOnly": {"type": "boolean"}, "id": {"readOnly": True}}, "required": ["readOnly"]}
    )

    assert schema["properties"]["body"] == {"properties": {"readOnly": {"type": "boolean"}}, "required": ["readOnly"]}


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ([{"type": "string"}, {"type": "integer"}], "oneOf"),
        ([{"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["b"]}], "oneOf"),
        ([{"required": ["card"], "type": "object"}, {"required": ["bank"], "type": "object"}], "oneOf"),
        ([{"properties": {"k": {"const": 1}}}, {"properties": {"k": {"const": 2}}}], "oneOf"),
        ([{"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "object"}}], "oneOf"),
        ([{"type": "string", "format": "uuid"}, {"type": "string", "format": "date"}], "anyOf"),
        ([{"type": "integer"}, {"type": "number"}], "anyOf"),
        ([{"type": "string"}, {"type": "string", "enum": ["a"]}], "anyOf"),
        ([{"type": "object"}, {"type": "object", "required": ["a"]}], "anyOf"),
        ([{"$ref": "#/nowhere"}, {"type": "string"}], "anyOf"),
    ],
)
async def test_alternatives_that_cannot_be_distinguished_do_not_exclude_each_other(
    options: list[Any], word: str
) -> None:
    assert list(await read({"oneOf": options})) == [word]


async def test_patterns_are_kept_respelled_or_dropped_so_that_the_fast_engine_takes_them() -> None:
    api = await api_of(
        {
            "paths": {
                "/a": {
                    "get": {
                        "parameters": [
                            {"name": "ok", "in": "query", "schema": {"pattern": "^a+$"}},
                            {"name": "js", "in": "query", "schema": {"pattern": "^[\\w-.]+$"}},
                            {"name": "bad", "in": "query", "schema": {"pattern": "(((", "format": "who-knows"}},
                            {
                                "name": "keys",
                                "in": "query",
                                "schema": {
                                    "patternProperties": {"[": {"type": "string"}},
                                    "additionalProperties": False,
                                },
                            },
                        ]
                    }
                }
            }
        }
    )
    schemas = {one.name: one.schema for one in api.operations[0].parameters}

    assert schemas == {
        "ok": {"pattern": "^a+$"},
        "js": {"pattern": "^[\\w\\-.]+$"},
        "bad": {"format": "who-knows"},
        "keys": {"patternProperties": {"": {}}, "additionalProperties": False},
    }
    assert any(problem.startswith("the pattern '((('") for problem in api.problems)
    assert compile_validator(input_schema(api.operations[0])).is_valid({"keys": {"anything": 5}})


async def test_what_is_nested_too_deeply_to_be_checked_is_cut_into_definitions() -> None:
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(70):
        deep = {"type": "object", "properties": {"in": deep}}
    schema = await sent(deep)

    value: Any = 5
    for _ in range(70):
        value = {"in": value}
    assert takes(schema, value)
    assert not takes(schema, {"in": {"in": 5}})


async def test_definitions_are_shared_by_all_operations_and_not_copied() -> None:
    thing = {"properties": {"kids": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}}}}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}}
    api = await api_of(
        {
            "paths": {f"/{n}": {"post": {"requestBody": body}} for n in range(3)},
            "components": {"schemas": {"Thing": thing, "Unused": {}}},
        }
    )
    first, *others = (input_schema(operation)["$defs"] for operation in api.operations)

    assert all(other["Thing"] is first["Thing"] for other in others)
    assert list(api.operations[0].definitions) == ["Thing"]


async def test_discriminators_stay_as_notes() -> None:
    mapping = {"cat": "#/components/schemas/Cat"}

    assert await read({"discriminator": {"propertyName": "kind", "mapping": mapping, "x-y": 1}}) == {
        "discriminator": {"propertyName": "kind", "mapping": mapping}
    }
