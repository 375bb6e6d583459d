"""A tool's place in the catalog: hand-written tools too, their arguments fitted and their results read."""

import time
from typing import Any

import pytest

from toolpost.catalog.function import tool
from toolpost.catalog.registry import ToolRegistry
from toolpost.contracts.calls import (
    NO_CREDENTIAL,
    AuthorizedCall,
    PermittedCall,
    RequestedCall,
    ToolOutput,
    ValidatedCall,
)
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolExecutionError, ToolOutputError, ToolValidationError
from toolpost.contracts.outcomes import ToolResult
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Question
from toolpost.contracts.spec import Tool, ToolCategory, ToolSpec
from toolpost.sources.base import BaseSource


class ReadNumber:
    """A tool as someone writes it by hand."""

    spec = ToolSpec(
        name="read_number",
        description="Read a number.",
        category=ToolCategory.CUSTOM,
        input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        output_schema={"type": "integer"},
        side_effects="pure",
    )

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        started = time.time() * 1000
        try:
            return ToolResult(success=True, result=int(params["text"]), started_at=started, completed_at=started)
        except ValueError as error:
            return ToolResult(success=False, error=str(error), started_at=started, completed_at=started)


class Asking:
    spec = ToolSpec(name="asking")

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(success=True, result=await context.pause("which", {"prompt": "Which one?"}))


class Elsewhere(BaseSource):
    """A source that runs the call in its own way."""

    def __init__(self) -> None:
        super().__init__(ExternalToolConfig(name="elsewhere", transport="cli", connection="x"))

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        return ToolOutput(f"{call.tool.spec.name} ran elsewhere")


async def invoke(made: Tool, *, source: Elsewhere | None = None, **arguments: Any) -> ToolOutput | Question:
    registry = ToolRegistry()
    registry.register(made, source=source)
    request = RequestedCall("call_1", "run_1", made.spec.name, arguments, Principal("acme", "ann"))
    call = AuthorizedCall(PermittedCall(ValidatedCall(request, made, arguments)), NO_CREDENTIAL, ToolContext)
    return await registry.find(made.spec.name).invoke(call)


@pytest.mark.req("PCUS-01", "PTYPE-01", "GEN-17")
async def test_a_hand_written_tool_is_registered_and_run_like_any_other() -> None:
    written = ReadNumber()

    assert isinstance(written, Tool)
    assert await invoke(written, text="42") == ToolOutput(42)


@pytest.mark.req("PCUS-01")
async def test_a_failure_that_a_hand_written_tool_caught_is_a_failure() -> None:
    with pytest.raises(ToolExecutionError, match="invalid literal for int"):
        await invoke(ReadNumber(), text="forty-two")


async def test_a_hand_written_tool_may_pause() -> None:
    answer = await invoke(Asking())

    assert isinstance(answer, Question)
    assert answer.prompt == "Which one?"


async def test_a_tool_of_a_source_is_run_by_its_source() -> None:
    assert await invoke(ReadNumber(), source=Elsewhere(), text="1") == ToolOutput("read_number ran elsewhere")


@tool
async def repeat(text: str, times: int = 2) -> str:
    """Repeat a text."""
    return text * times


@tool(lenient=True)
async def repeat_kindly(text: str, times: int = 2) -> str:
    """Repeat a text."""
    return text * times


@pytest.fixture
def registry() -> ToolRegistry:
    made = ToolRegistry()
    made.register_many([repeat, repeat_kindly, ReadNumber(), Asking()])
    return made


@pytest.mark.req("DEF-15", "GEN-18")
@pytest.mark.parametrize(
    ("arguments", "issue"),
    [
        ({}, "text"),
        ({"text": 7}, r"\$\.text: expected string"),
        ({"text": "a", "times": "2"}, r"\$\.times: expected integer"),
        ({"text": "a", "time": 2}, "time"),
        ([], r"\$: expected object"),
        (None, r"\$: expected object"),
        ({"text": {1, 2}}, "not JSON"),
    ],
    ids=["missing", "wrong-type", "number-as-text", "extra", "list", "none", "not-json"],
)
def test_arguments_that_do_not_fit_are_refused_in_our_own_words(
    registry: ToolRegistry, arguments: Any, issue: str
) -> None:
    with pytest.raises(ToolValidationError, match=f"Parameter validation failed: .*{issue}") as raised:
        registry.find("repeat").fit(arguments)

    assert raised.value.tool_name == "repeat"


def test_arguments_that_fit_are_left_as_they_are(registry: ToolRegistry) -> None:
    arguments = {"text": "a", "times": 3}

    assert registry.find("repeat").fit(arguments) is arguments


def test_a_lenient_tool_takes_a_quoted_number(registry: ToolRegistry) -> None:
    assert registry.find("repeat_kindly").fit({"text": "a", "times": "3"}) == {"text": "a", "times": 3}


def test_a_tool_that_does_not_check_still_wants_an_object() -> None:
    unchecked = repeat.renamed(ToolSpec(name="unchecked", input_schema=repeat.spec.input_schema, validate_inputs="off"))
    registry = ToolRegistry()
    registry.register(unchecked)

    assert registry.find("unchecked").fit({"text": 7}) == {"text": 7}
    with pytest.raises(ToolValidationError, match="expected object, got str"):
        registry.find("unchecked").fit("text")


def test_results_are_checked_only_where_something_was_promised(registry: ToolRegistry) -> None:
    checked = registry.find("read_number").output_validator

    assert checked is not None
    assert checked.is_valid(42)
    with pytest.raises(ToolOutputError, match="Output validation failed"):
        checked.check("forty-two", "read_number", error=ToolOutputError)
    assert registry.find("asking").output_validator is None


def test_validators_are_compiled_once(registry: ToolRegistry) -> None:
    entry = registry.find("read_number")

    assert entry.input_validator is entry.input_validator
    assert entry.output_validator is entry.output_validator
