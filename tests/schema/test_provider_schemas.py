"""Schemas compiled for each model provider, and arguments converted back without a loss."""

import copy
import json
from typing import Any

import pytest
from anthropic.lib._parse._transform import transform_schema  # the transform of the SDK itself
from hypothesis import given
from hypothesis import strategies as st
from openai.lib._pydantic import _ensure_strict_json_schema  # the transform of the SDK itself

from tests.schema.strategies import schemas, schemas_and_values
from tests.specs import OWN, own_api
from toolpost.contracts.spec import ToolDefinition
from toolpost.schema.provider_dialects import DIALECTS, dialect_of, violations
from toolpost.schema.provider_schemas import CompiledSchema, LeftOut, ToolCompiler, compile_schema
from toolpost.schema.validator import compile_validator
from toolpost.sources.openapi.spec import tool_spec

PROVIDERS = [*DIALECTS]
REWRITTEN = [name for name, dialect in DIALECTS.items() if dialect.rewrites]


def compiled(schema: Any, provider: Any = "openai-strict") -> CompiledSchema:
    made = compile_schema(schema, dialect_of(provider))
    assert isinstance(made, CompiledSchema), made
    return made


def properties(provider: Any = "openai-strict", **declared: Any) -> Any:
    return compiled({"type": "object", "properties": declared}, provider).schema["properties"]


def tools(schema: Any) -> ToolDefinition:
    return ToolDefinition("a_tool", "It does.", schema)


@pytest.mark.parametrize("provider", REWRITTEN)
@given(made=st.lists(schemas(), min_size=1, max_size=3))
def test_every_compiled_schema_is_within_the_rules(provider: Any, made: list[Any]) -> None:
    for schema in ({"type": "object", "properties": dict(zip("abc", made, strict=False))}, made[0]):
        assert [*violations(compiled(copy.deepcopy(schema), provider).schema, dialect_of(provider))] == []


@pytest.mark.req("FRAME-05")
@pytest.mark.parametrize("provider", REWRITTEN)
@given(made=schemas_and_values(), others=st.dictionaries(st.sampled_from(["x", "größe"]), st.integers()))
def test_no_argument_is_lost_on_the_way_to_a_model_and_back(provider: Any, made: Any, others: dict[str, Any]) -> None:
    schema, value = made
    whole = {"type": "object", "properties": {"a b": schema, "n": schema}, "additionalProperties": {"type": "integer"}}
    for arguments in ({"a b": value, **others}, {"n": value}, {}):
        once = compiled(whole, provider)
        shown = once.to_model(arguments)

        assert compile_validator(once.schema).issues(shown) == []
        assert once.from_model(json.loads(json.dumps(shown))) == arguments


@pytest.mark.parametrize("provider", REWRITTEN)
@given(made=schemas_and_values())
def test_a_schema_that_is_no_object_is_converted_back_too(provider: Any, made: Any) -> None:
    schema, value = made
    once = compiled(schema, provider)

    assert once.from_model(json.loads(json.dumps(once.to_model(value)))) == value


@given(made=st.lists(schemas(), min_size=1, max_size=3))
def test_a_strict_schema_is_what_the_sdk_of_openai_makes_of_it(made: list[Any]) -> None:
    strict = compiled({"type": "object", "properties": dict(zip("abc", made, strict=False))}).schema

    assert _ensure_strict_json_schema(copy.deepcopy(strict), path=(), root=strict) == strict


@given(made=st.lists(schemas(), min_size=1, max_size=3))
def test_a_strict_schema_is_accepted_by_the_transform_of_anthropic(made: list[Any]) -> None:
    strict = compiled({"type": "object", "properties": dict(zip("abc", made, strict=False))}).schema

    assert transform_schema(strict)["required"] == strict["required"]


@pytest.mark.req("FRAME-05")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_every_tool_of_our_documents_passes(provider: Any) -> None:
    documents = [OWN / name for name in ("future.yaml", "shop.yaml", "shop_swagger.yaml")]
    listed = [
        ToolDefinition(spec.name, spec.description, spec.input_schema)
        for path in documents
        for spec in [tool_spec(one, source="api") for one in (await own_api(path.name)).operations]
    ]

    made = ToolCompiler(provider).compile(listed)

    assert len(made.definitions) == len(listed) > 5
    for tool in made.definitions:
        assert [*violations(tool.parameters, dialect_of(provider))] == []


def test_an_optional_property_may_be_null_which_is_omitted() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}

    strict = compiled(schema)

    assert strict.schema == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    assert strict.from_model({"a": 1, "b": None}) == {"a": 1}


def test_null_and_an_omitted_property_stay_different() -> None:
    schema = {"type": "object", "properties": {"owner": {"type": ["string", "null"]}}}

    strict = compiled(schema)

    assert strict.from_model({"owner": {"value": None}}) == {"owner": None}
    assert strict.from_model({"owner": {"value": "ann"}}) == {"owner": "ann"}
    assert strict.from_model({"owner": None}) == {}


def test_an_object_with_any_names_is_json_text() -> None:
    schema = {
        "type": "object",
        "properties": {
            "labels": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Tags."}
        },
        "required": ["labels"],
    }

    for provider in ("openai-strict", "gemini"):
        once = compiled(schema, provider)
        shown = once.schema["properties"]["labels"]
        assert shown["type"] == "string"
        assert shown["description"].startswith("Tags. JSON text of a value that matches")
        assert once.from_model({"labels": '{"a": "b"}'}) == {"labels": {"a": "b"}}
        assert once.from_model({"labels": "not JSON"}) == {"labels": "not JSON"}


def test_undeclared_properties_are_in_one_property() -> None:
    schema = {
        "type": "object",
        "properties": {"additional_properties": {"type": "string"}},
        "additionalProperties": True,
    }

    strict = compiled(schema)

    shown = strict.to_model({"additional_properties": "x", "more": [1]})
    assert shown == {"additional_properties": "x", "additional_properties_": '{"more":[1]}'}
    assert strict.from_model(shown) == {"additional_properties": "x", "more": [1]}


def test_references_are_replaced_and_recursive_ones_are_json_text() -> None:
    node = {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}}}
    schema = {"type": "object", "properties": {"first": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}

    for provider in REWRITTEN:
        once = compiled(schema, provider)
        arguments = {"first": {"name": "a", "next": {"name": "b"}}}
        assert "$ref" not in json.dumps(once.schema).replace('\\"$ref\\"', "")
        assert once.from_model(once.to_model(arguments)) == arguments


def test_options_that_are_not_strings_are_strings_for_gemini() -> None:
    once = compiled({"type": "object", "properties": {"size": {"enum": [1, 2, None]}}}, "gemini")

    assert once.schema["properties"]["size"] == {"type": "string", "enum": ["1", "2", "null"]}
    assert [once.from_model({"size": text}) for text in ("2", "null")] == [{"size": 2}, {"size": None}]


def test_keywords_that_a_provider_lacks_are_in_the_description() -> None:
    text = {"type": "string", "minLength": 3, "format": "iban", "description": "An account."}

    assert properties(iban=text)["iban"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert properties(iban=text)["iban"]["description"] == 'An account. (minLength: 3, format: "iban")'
    assert properties("gemini", iban=text)["iban"]["minLength"] == 3


def test_names_that_are_no_identifiers_are_mapped_for_gemini() -> None:
    once = compiled({"type": "object", "properties": {"1st-name": {"type": "string"}}}, "gemini")

    (shown,) = once.schema["properties"]
    assert shown.isidentifier()
    assert once.from_model({shown: "Ann"}) == {"1st-name": "Ann"}


def test_parts_of_allof_are_merged_if_they_agree() -> None:
    base = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    more = {"properties": {"b": {"type": "string"}}, "required": ["b"]}
    schema = {
        "type": "object",
        "properties": {"it": {"allOf": [{"$ref": "#/$defs/base"}, more]}},
        "$defs": {"base": base},
    }

    merged = compiled(schema).schema["properties"]["it"]["anyOf"][0]

    assert (merged["type"], merged["required"]) == ("object", ["a", "b"])
    assert properties(it={"allOf": [{"minimum": 1}, {"minimum": 2}]})["it"]["anyOf"][0]["type"] == "string"


def test_alternatives_that_cannot_be_distinguished_are_json_text() -> None:
    by_name = {"type": "object", "properties": {"name": {"type": "string"}}}
    by_id = {"type": "object", "properties": {"id": {"type": "integer"}}}

    apart = compiled(
        {"type": "object", "properties": {"by": {"oneOf": [by_name, {"type": "integer"}]}}, "required": ["by"]}
    )
    alike = compiled({"type": "object", "properties": {"by": {"oneOf": [by_name, by_id]}}, "required": ["by"]})

    assert len(apart.schema["properties"]["by"]["anyOf"]) == 2
    assert apart.from_model({"by": {"name": None}}) == {"by": {}}
    assert alike.schema["properties"]["by"]["type"] == "string"
    assert alike.from_model({"by": '{"id": 1}'}) == {"by": {"id": 1}}


@pytest.mark.parametrize(
    ("schema", "field", "reason"),
    [
        (
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/gone"}}},
            "#/$defs/gone",
            "the reference leads nowhere",
        ),
        (
            {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(5001)}},
            "$",
            "it has more than 5000 properties",
        ),
        (
            {"type": "object", "properties": {f"{n:064}": {"type": "string"} for n in range(1900)}},
            "$",
            "its names and options have more than 120000 characters",
        ),
    ],
)
@pytest.mark.req("FRAME-06")
def test_a_tool_that_cannot_be_shown_is_left_out_with_its_field(schema: Any, field: str, reason: str) -> None:
    fine = ToolDefinition("fine", "It is.", {"type": "object", "properties": {}})

    made = ToolCompiler("openai-strict").compile([tools(schema), fine])

    assert made.left_out == [LeftOut("a_tool", field, reason)]
    assert [tool.name for tool in made.definitions] == ["fine"]


@pytest.mark.parametrize(
    "options", [[str(n) for n in range(1001)], [*range(1001), None], [f"{n:060}" for n in range(251)]]
)
def test_an_enum_that_is_too_large_is_a_value_of_its_types(options: list[Any]) -> None:
    schema = {"type": "object", "properties": {"few": {"enum": ["a"]}, "many": {"enum": options}}}

    strict = compiled(schema)

    assert [*violations(strict.schema, dialect_of("openai-strict"))] == []
    assert strict.schema["properties"]["few"]["anyOf"][0] == {"type": "string", "enum": ["a"]}
    assert strict.schema["properties"]["many"]["description"] == f"One of {len(options):,} values."
    assert "enum" not in json.dumps(strict.schema["properties"]["many"])
    for value in (options[0], options[-1]):
        assert strict.from_model(strict.to_model({"many": value})) == {"many": value}


def test_objects_with_the_same_first_property_are_json_text_unless_its_options_differ() -> None:
    named = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    aged = {"type": "object", "properties": {"name": {"type": "integer"}}, "required": ["name"]}
    cat = {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]}
    dog = {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"]}
    needed = {"type": "object", "required": ["by"]}

    alike = compiled({**needed, "properties": {"by": {"anyOf": [named, aged]}}})
    apart = compiled({**needed, "properties": {"by": {"anyOf": [cat, dog]}}})

    assert alike.schema["properties"]["by"]["type"] == "string"
    assert alike.from_model(alike.to_model({"by": {"name": 1}})) == {"by": {"name": 1}}
    assert len(apart.schema["properties"]["by"]["anyOf"]) == 2
    raw = {"type": "object", "properties": {"by": {"anyOf": [named, aged]}}}
    reasons = {one.field: one.reason for one in violations(raw, dialect_of("openai-strict"))}
    assert reasons["$.properties.by.anyOf"] == "two objects have the same first property"


def test_formats_are_those_of_the_type_for_gemini() -> None:
    shown = properties(
        "gemini",
        id={"type": "string", "format": "int64"},
        count={"type": "integer", "format": "int64"},
        at={"type": "string", "format": "date-time"},
    )

    assert shown["id"] == {"type": "string", "description": '(format: "int64")'}
    assert (shown["count"]["format"], shown["at"]["format"]) == ("int64", "date-time")
    raw = {"type": "object", "properties": {"id": {"type": "string", "format": "int64"}}}
    assert [one.field for one in violations(raw, dialect_of("gemini"))] == ["$.properties.id.format"]


@pytest.mark.parametrize("provider", ["openai", "anthropic", "bedrock", "json"])
def test_every_array_has_a_schema_of_its_items(provider: Any) -> None:
    shown = properties(
        provider,
        any={"type": "array"},
        maybe={"type": ["array", "null"], "items": True},
        pair={"type": "array", "items": [{"type": "string"}, {"$ref": "#/properties/pair/items/0"}]},
        rest={"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "integer"}},
        texts={"type": "array", "items": {"type": "string"}},
        inner={"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    )

    assert (shown["any"]["items"], shown["maybe"]["items"], shown["texts"]["items"]) == ({}, {}, {"type": "string"})
    assert shown["rest"] == {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}
    second = {"type": "string"} if provider == "bedrock" else {"$ref": "#/properties/pair/prefixItems/0"}
    assert shown["pair"] == {"type": "array", "prefixItems": [{"type": "string"}, second], "items": {}}


def test_openai_rejects_an_array_without_a_schema_of_its_items() -> None:
    schema = {"type": "object", "properties": {"texts": {"type": "array"}}}

    for provider, fields in (("openai", ["$.properties.texts"]), ("anthropic", [])):
        assert [one.field for one in violations(schema, dialect_of(provider))] == fields


def test_a_schema_that_is_deeper_than_allowed_is_json_text_from_there_on() -> None:
    deep: Any = {"type": "string"}
    for _ in range(60):
        deep = {"type": "object", "properties": {"in": deep}, "required": ["in"]}
    value: Any = "bottom"
    for _ in range(60):
        value = {"in": value}

    for provider in ("openai-strict", "gemini"):
        once = compiled(deep, provider)
        assert [*violations(once.schema, dialect_of(provider))] == []
        assert once.from_model(once.to_model(value)) == value


def test_compiled_tools_are_reused_and_a_long_description_is_shortened() -> None:
    compiler = ToolCompiler("openai")
    long = ToolDefinition("long", "x" * 2000, {"type": "object", "properties": {"größe": {"type": "string"}}})

    first, second = compiler.compile([long]), compiler.compile([long])

    assert first.definitions[0] is second.definitions[0]
    assert len(first.definitions[0].description) == 1024
    (alias,) = first.definitions[0].parameters["properties"]
    assert second.from_model("long", {alias: "1"}) == {"größe": "1"}
    assert second.from_model("unknown", {"a": 1}) == {"a": 1}


def test_an_unknown_provider_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown provider 'acme'; use one of: openai, openai-strict, anthropic"):
        dialect_of("acme")
