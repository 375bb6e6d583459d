"""Answers of a type, and models without function calling: what does not fit is said to the model, not returned."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from toolpost import ConfigError, PlannerFinish, PlannerPause, ReactPlanner, Settings, ToolContext, tool
from toolpost.testing import ScriptedModel, tool_calls

MEMORY = Settings(data_dir=None)


class City(BaseModel):
    """A city."""

    name: str
    people: int

    @field_validator("people")
    @classmethod
    def check(cls, people: int) -> int:
        """Cities have people."""
        if people < 1:
            raise ValueError("a city has people")
        return people


@tool(side_effects="pure")
async def count(city: str, unit: dict[str, list[int]] | None = None) -> int:
    """Count the people of a city."""
    return len(city)


@tool(side_effects="write")
async def seat(ctx: ToolContext) -> str:
    """Find a seat."""
    return f"seat {await ctx.pause('await_input', prompt='Which seat?')}"


async def finished(model: Any, **options: Any) -> PlannerFinish:
    async with ReactPlanner(catalog=[count, seat], llm=model, settings=MEMORY, **options) as planner:
        result = await planner.run("Tell me about Ulm.")
    assert isinstance(result, PlannerFinish)
    return result


async def test_an_answer_has_the_type_that_was_asked_for() -> None:
    model = ScriptedModel(tool_calls(("count", {"city": "Ulm"})), 'Here:\n```json\n{"name": "Ulm", "people": 3}\n```')
    result = await finished(model, answer_schema=City)
    assert result.answer == City(name="Ulm", people=3)
    assert '"people": {"type": "integer"}' in model.requests[0][0]["content"]
    assert "people" not in result.messages[0]["content"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Ulm has three people.", "it contains no JSON"),
        ('{"name": "Ulm", "people": ', "it is not JSON"),
        ('{"name": "Ulm", "people": "three"}', '$.people: expected integer, got string "three"'),
        ('{"name": "Ulm", "people": NaN}', "it is not JSON"),
        ('{"name": "Ulm", "people": 0}', "$.people: Value error, a city has people"),
    ],
    ids=["prose", "cut", "type", "nan", "validator"],
)
async def test_an_answer_that_does_not_fit_is_corrected_and_held_to_the_schema(said: str, told: str) -> None:
    model = ScriptedModel(said, '{"name": "Ulm", "people": 3}')
    result = await finished(model, answer_schema=City)
    assert result.answer == City(name="Ulm", people=3)
    assert told in model.requests[1][-1]["content"]
    assert [schema and schema["required"] for schema in model.response_schemas] == [None, ["name", "people"]]
    assert model.tools == [["count", "seat"], []]


async def test_an_answer_that_never_fits_is_no_answer() -> None:
    result = await finished(
        ScriptedModel("a", "b", "c", "d"), answer_schema={"type": "array", "items": {"type": "null"}}
    )
    assert (result.reason, result.answer, result.metadata["iterations"]) == ("no_path", None, 3)
    assert "it contains no JSON" in result.metadata["problem"]


async def test_a_schema_of_text_takes_the_text_as_it_is() -> None:
    assert (await finished(ScriptedModel("Ulm"), answer_schema={"enum": ["Ulm", "Bonn"]})).answer == "Ulm"


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, 5], ids=["schema", "number"])
def test_what_is_no_schema_is_said_at_once(schema: Any) -> None:
    with pytest.raises(ConfigError, match="answer_schema"):
        ReactPlanner(catalog=[count], llm=ScriptedModel(), answer_schema=schema)


async def test_a_model_without_functions_calls_tools_by_json() -> None:
    model = ScriptedModel('{"tool": "count", "args": {"city": "Ulm"}}', '{"answer": "Three."}')
    result = await finished(model, mode="json")
    assert (result.answer, model.tools) == ("Three.", [[], []])
    rules, asked = model.requests[0]
    assert "- count: Count the people of a city." in rules["content"]
    assert asked == {"role": "user", "content": "Tell me about Ulm."}
    assert [(message["role"], message["content"]) for message in model.requests[1][2:]] == [
        ("assistant", '{"tool": "count", "args": {"city": "Ulm"}}'),
        ("user", "Result of count:\n3"),
    ]
    assert [message["role"] for message in result.messages] == ["system", "user", "assistant", "tool", "assistant"]


async def test_a_model_without_functions_reads_its_earlier_answers_as_it_writes_them() -> None:
    model = ScriptedModel("Three.", '{"answer": "Three."}', '{"answer": "Still."}')
    before = await finished(model, mode="json")
    await ReactPlanner(catalog=[count], llm=model, mode="json").run("And now?", messages=before.messages)
    said = [message["content"] for message in model.requests[-1] if message["role"] == "assistant"]
    assert said == ["Three.", '{"answer": "Three."}']  # the first could not be used, and it was told so


async def test_the_schema_of_an_action_is_one_of_each_tool_and_of_the_answer() -> None:
    model = ScriptedModel('{"answer": {"name": "Ulm", "people": 3}}')
    assert (await finished(model, mode="json", answer_schema=City)).answer == City(name="Ulm", people=3)
    (schema,) = model.response_schemas
    assert schema is not None
    tools, answer = schema["anyOf"][:-1], schema["anyOf"][-1]
    assert [each["properties"]["tool"]["const"] for each in tools] == ["count", "seat"]
    assert tools[0]["properties"]["args"]["required"] == ["city"]
    assert answer["properties"]["answer"]["required"] == ["name", "people"]


@pytest.mark.parametrize(
    "action",
    [
        '{"next_node": "count", "args": {"city": "Ulm"}}',
        'I shall count.\n```json\n{"tool": "count", "arguments": {"city": "Ulm"}}\n```',
        '{"calls": [{"tool": "count", "args": {"city": "Ulm"}}]}',
        '{"next_node": "parallel", "args": {"steps": [{"node": "count", "args": {"city": "Ulm"}}]}}',
        '{"tool": "count", "args": "{\\"city\\": \\"Ulm\\"}"} and then I answer',
    ],
    ids=["next-node", "fenced", "calls", "parallel", "text"],
)
@pytest.mark.parametrize(
    "answer",
    [
        '{"next_node": "final_response", "args": {"answer": "3"}}',
        '{"next_node": null, "args": {"raw_answer": "3"}}',
        '{"answer": 3}',
    ],
    ids=["final", "raw", "number"],
)
async def test_the_common_spellings_of_an_action_are_read(action: str, answer: str) -> None:
    model = ScriptedModel(action, answer)
    assert (await finished(model, mode="json")).answer == "3"
    assert "Result of count:\n3" in model.requests[1][-1]["content"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Ulm has three people.", "it contains no JSON"),
        ('{"tool": "count"', "it is not JSON"),
        ("[1]", "it is not an object"),
        ("{}", "it has neither a tool nor an answer"),
        ('{"calls": []}', "calls is a list of objects"),
        ('{"next_node": "parallel", "args": {"steps": [], "join": {"node": "count"}}}', "results are not joined"),
    ],
    ids=["prose", "cut", "array", "empty", "no-calls", "join"],
)
async def test_an_action_that_is_none_is_corrected(said: str, told: str) -> None:
    model = ScriptedModel(said, '{"answer": "Three."}')
    assert (await finished(model, mode="json")).answer == "Three."
    assert told in model.requests[1][-1]["content"]


async def test_json_actions_pause_and_continue_and_errors_say_what_to_do_next() -> None:
    twice = json.dumps({"calls": [{"tool": "seat", "args": {}}, {"tool": "cout", "args": {"city": "Ulm"}}]})
    model = ScriptedModel(twice, '{"answer": "Done."}')
    async with ReactPlanner(catalog=[count, seat], llm=model, settings=MEMORY, mode="json") as planner:
        pause = await planner.run("Sit.")
        assert isinstance(pause, PlannerPause)
        await planner.resume(pause.resume_token, 4)
    told = model.requests[1][-1]["content"]
    assert 'Result of cout:\nThe call failed (tool_not_found): Tool "cout" not found. Did you mean "count"?' in told
    assert "Call one of the tools that you were given" in told
    assert "Result of seat:\nseat 4" in told
