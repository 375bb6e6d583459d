"""Operations as tools."""

from typing import Any

import pytest

from tests.specs import operation_of, own_api
from toolpost.contracts.spec import SafetyProfile, ToolCategory
from toolpost.schema.validator import compile_validator
from toolpost.sources.openapi.markdown import shorten
from toolpost.sources.openapi.spec import input_schema, output_schema, tool_spec

JSON = "application/json"


def answering(**answers: Any) -> dict[str, Any]:
    """An operation with a JSON schema for each status (`s200=...`); None for an answer without content."""
    return {
        "responses": {
            status.removeprefix("s"): {"content": {JSON: {"schema": schema}}} if schema is not None else {}
            for status, schema in answers.items()
        }
    }


async def test_a_tool_says_all_there_is_to_say() -> None:
    operation = (await own_api("shop.yaml")).operations[0]
    spec = tool_spec(operation, source="shop")

    assert spec.name == "shop.things_get"
    assert spec.description == "Get a thing. Everything that is known about it."
    assert (spec.category, spec.source, spec.deprecated) == (ToolCategory.NETWORK, "shop", False)
    assert spec.tags == ("http", "shop", "things")
    assert (spec.extra["method"], spec.extra["path"], spec.extra["remote_name"]) == (
        "GET",
        "/things/{id}",
        "things/get",
    )


@pytest.mark.parametrize(
    ("method", "effects", "replay", "destructive"),
    [
        ("get", "read", "idempotent", False),
        ("head", "read", "idempotent", False),
        ("options", "read", "idempotent", False),
        ("trace", "read", "idempotent", False),
        ("query", "read", "idempotent", False),
        ("put", "external", "idempotent", None),
        ("delete", "external", "idempotent", True),
        ("post", "external", "unsafe", None),
        ("patch", "external", "unsafe", None),
    ],
)
async def test_the_method_reports_what_a_call_may_do(
    method: str, effects: str, replay: str, destructive: bool | None
) -> None:
    spec = tool_spec(await operation_of({}, method=method), source="s")

    assert (spec.side_effects, spec.replay) == (effects, replay)
    assert spec.safety == SafetyProfile(network=True, destructive=destructive, open_world=True)


async def test_an_unknown_method_may_do_anything() -> None:
    spec = tool_spec((await own_api("future.yaml")).operations[-1], source="s")

    assert (spec.extra["method"], spec.side_effects, spec.replay) == ("COPY", "external", "unsafe")


async def test_the_arguments_are_the_parameters_and_the_body_and_nothing_else() -> None:
    operation = await operation_of(
        {
            "parameters": [
                {
                    "name": "n",
                    "in": "query",
                    "description": "How many.",
                    "deprecated": True,
                    "schema": {"type": "integer"},
                },
                {"name": "id", "in": "query", "required": True, "schema": {"type": "string"}},
            ],
            "requestBody": {"required": True, "content": {JSON: {"schema": {"type": "object", "required": ["a"]}}}},
        },
        method="post",
    )
    schema = input_schema(operation)

    assert schema == {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "description": "How many.", "deprecated": True},
            "id": {"type": "string"},
            "body": {"type": "object", "required": ["a"]},
        },
        "required": ["id", "body"],
        "additionalProperties": False,
    }


async def test_null_for_what_need_not_be_given_is_taken_as_absent() -> None:
    parameters = [
        {"name": "kind", "in": "query", "schema": {"$ref": "#/components/schemas/Kind"}},
        {"name": "must", "in": "query", "required": True, "schema": {"$ref": "#/components/schemas/Kind"}},
    ]
    operation = await operation_of({"parameters": parameters}, components={"schemas": {"Kind": {"enum": ["a", "b"]}}})
    validator = compile_validator(input_schema(operation))
    is_valid = validator.is_valid

    assert is_valid({"must": "a"})
    assert validator.coerce({"must": "a", "kind": None}) == {"must": "a"}
    assert validator.coerce({"must": None}) == {"must": None}
    assert not is_valid({"must": None})
    assert not is_valid({"must": "a", "kind": "c"})
    assert not is_valid({"must": "a", "other": 1})


@pytest.mark.parametrize(
    ("answers", "schema"),
    [
        ({"s200": {"type": "object"}, "s404": {"type": "string"}}, {"type": "object"}),
        ({"s201": {"type": "array"}, "default": {"type": "string"}}, {"type": "array"}),
        ({"default": {"type": "object"}, "s404": None}, {"type": "object"}),
        ({"s200": {"type": "object"}, "s201": {"type": "object"}}, {"type": "object"}),
        ({"s200": {"type": "object"}, "s202": {"type": "array"}}, {"anyOf": [{"type": "object"}, {"type": "array"}]}),
        ({"s200": {"type": "object"}, "s204": None}, {"anyOf": [{"type": "object"}, {"type": "null"}]}),
        ({"s200": {"type": "object"}, "s304": None}, {"anyOf": [{"type": "object"}, {"type": "null"}]}),
        ({"s204": None, "s404": {"type": "object"}}, None),
        ({}, None),
    ],
)
async def test_the_output_is_what_success_brings(answers: dict[str, Any], schema: Any) -> None:
    assert output_schema(await operation_of(answering(**answers))) == schema


async def test_where_an_answer_may_be_a_redirection_its_address_fits_as_well() -> None:
    schema = output_schema(await operation_of(answering(s200={"type": "array"}, s302=None)))

    assert compile_validator(schema or False).is_valid({"status": 302, "location": "https://a.example"})


@pytest.mark.parametrize(
    ("content", "has_schema"),
    [
        ({"text/csv": {"schema": {"type": "string"}}, "application/hal+json": {"schema": {"type": "object"}}}, True),
        ({"*/*": {"schema": {"type": "object"}}}, True),
        ({"*/*": {"schema": {"type": "string", "format": "binary"}}}, False),
        ({"text/plain": {"schema": {"type": "string"}}}, False),
        ({JSON: {}}, False),
        ({JSON: {"schema": True}}, False),
    ],
)
async def test_only_json_has_an_output_schema(content: Any, has_schema: bool) -> None:
    operation = await operation_of({"responses": {"200": {"content": content}}})

    assert (output_schema(operation) is not None) is has_schema


async def test_head_has_no_output_of_its_own() -> None:
    assert output_schema(await operation_of(answering(s200={"type": "object"}), method="head")) is None


async def test_an_output_that_leads_to_everything_is_cut_where_it_only_takes_more() -> None:
    count = 400
    schemas = {
        f"T{n}": {
            "type": "object",
            "properties": {
                "n": {"type": "integer"},
                "next": {"oneOf": [{"$ref": f"#/components/schemas/T{(n + 1) % count}"}, {"type": "null"}]},
            },
        }
        for n in range(count)
    }
    operation = await operation_of(answering(s200={"$ref": "#/components/schemas/T0"}), components={"schemas": schemas})
    schema = output_schema(operation) or {}
    is_valid = compile_validator(schema).is_valid

    assert len(operation.response_definitions) == count
    assert 10 < len(schema["$defs"]) < 150
    assert is_valid({"n": 1, "next": {"n": 2, "next": None}})
    assert not is_valid({"n": 1, "next": {"n": "two"}})
    value: Any = {"n": "wrong"}
    for n in range(count - 1):
        value = {"n": n, "next": value}
    assert "next" in value


async def test_a_description_is_never_empty_nor_longer_than_models_take() -> None:
    plain = tool_spec(await operation_of({}), source="s")
    long = tool_spec(
        await operation_of({"summary": "Do it.", "description": "A sentence. " * 300 + "\x00"}), source="s"
    )

    assert plain.description == "GET /things"
    assert len(long.description) <= 1024
    assert long.description.startswith("Do it. A sentence.")
    assert long.description.endswith("A sentence.")


@pytest.mark.parametrize(
    ("text", "limit", "short"),
    [
        ("Short.", 10, "Short."),
        ("One. Two. Three.", 10, "One. Two."),
        ("One long sentence without an end", 12, "One long…"),
        ("Unbreakable" * 3, 8, "Unbreak…"),
        ("Any", 0, ""),
    ],
)
def test_texts_are_cut_at_sentences_or_words(text: str, limit: int, short: str) -> None:
    assert shorten(text, limit) == short


async def test_long_names_are_cut_and_stay_apart() -> None:
    names = {tool_spec(await operation_of({"operationId": "a" * 100 + end}), source="shop").name for end in ("x", "y")}

    assert len(names) == 2
    assert {len(name) for name in names} == {63}


async def test_html_in_a_document_is_markdown_in_its_tools() -> None:
    text = (
        '<p>Sends <code>n</code> to <a href="https://a.example/b">b</a>.</p><ul><li>R&amp;D</li></ul>Not `<p>`, <id>.'
    )
    parameter = {"name": "n", "in": "query", "description": "<b>How</b> many", "schema": {"description": "<p>n</p>"}}
    operation = await operation_of({"description": text, "parameters": [parameter]})
    spec = tool_spec(operation, source="s")

    assert spec.description == "Sends `n` to [b](https://a.example/b).\n\n- R&D\n\nNot `<p>`, <id>."
    assert spec.input_schema["properties"]["n"]["description"] == "**How** many"


@pytest.mark.parametrize(
    ("summary", "description", "line"),
    [
        ("List Orders", "Returns those of the last month.", "List Orders. Returns those of the last month."),
        ("List orders", "List orders that are open.", "List orders that are open."),
        ("List orders.", "", "List orders."),
        ("List orders", "# Orders\n\nAll of them.", "List orders"),
    ],
)
async def test_the_first_line_of_a_tool_says_more_than_a_title(summary: str, description: str, line: str) -> None:
    operation = await operation_of({"summary": summary, "description": description})

    assert tool_spec(operation, source="s").description.partition("\n")[0] == line


async def test_a_choice_of_what_must_be_there_allows_one_of_them_only() -> None:
    properties = {"id": {"type": "string"}, "email": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "oneOf": [{"required": ["id"]}, {"required": ["email"]}]}
    operation = await operation_of({"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}})
    is_valid = compile_validator(input_schema(operation)).is_valid

    assert is_valid({"body": {"id": "1"}})
    assert not is_valid({"body": {"id": "1", "email": "a@b.example"}})


async def test_a_file_with_two_contents_does_not_fit_its_schema() -> None:
    operation = await operation_of(
        {"requestBody": {"required": True, "content": {"application/octet-stream": {}}}}, method="post"
    )
    is_valid = compile_validator(input_schema(operation)).is_valid

    assert is_valid({"body": {"text": "a"}})
    assert not is_valid({"body": {"text": "a", "base64": "YQ=="}})
