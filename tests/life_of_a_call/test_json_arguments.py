"""Arguments as models send them: JSON text, which may be broken."""

import json

import pytest

from tests.life_of_a_call.conftest import MakeBox
from toolpost import Completed, EventBus, ExternalToolConfig, Failed, ToolContext, ToolNode, ToolRegistry, tool
from toolpost.contracts.errors import ToolValidationError
from toolpost.contracts.source_kinds import TransportType

BROKEN = {
    '{"a": hunter2': "the arguments are not JSON: Expecting value at line 1 column 7; send one JSON object",
    '{"a": NaN}': "the arguments are not JSON: NaN is not a JSON value",
    "[" * 100_000: "the arguments are not JSON: it is nested too deeply",
    '{"a": ' + "9" * 5000 + "}": "the arguments are not JSON",
    "[1]": "$: expected object, got array",
    '"{}"': "(send the JSON itself, not text of it)",
}


@tool(side_effects="pure")
async def add(a: int = 1, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="pure")
async def through(text: str, ctx: ToolContext) -> str:
    """Call another tool with text for its arguments."""
    outcome = await ctx.call("add", text)
    return str(outcome.content if isinstance(outcome, Completed) else outcome.status)


@pytest.mark.parametrize(("text", "total"), [('{"a": 2}', 3), ("", 2), ("  \n", 2), ("{}", 2), ("null", 2)])
async def test_arguments_may_be_json_text(make_box: MakeBox, text: str, total: int) -> None:
    async with make_box(add, through) as box:
        outcome = await box.call("add", text)
        requested = (await box.events(run_id=outcome.run_id))[0]
        result = await box.executor(EventBus()).execute("add", text, ToolContext("task"))
        inner = await box.call("through", {"text": text})
    assert outcome.content == result.result == total
    assert inner.content == str(total)
    assert requested.payload["params"] == (json.loads(text or "{}") or {} if text.strip() else {})


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
async def test_text_that_is_no_json_object_is_a_failure_that_a_model_can_read(make_box: MakeBox, text: str) -> None:
    async with make_box(add) as box:
        outcome = await box.call("add", text, idempotency_key="once")
        result = await box.executor(EventBus()).execute("add", text, ToolContext("task"))
        told = await box.events(run_id=outcome.run_id)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ToolValidationError)
    assert BROKEN[text] in str(outcome.error)
    assert result.error == str(outcome.error)
    assert "hunter2" not in f"{outcome} {[event.payload for event in told]}"
    assert [event.code.name for event in told] == ["TOOL_CALL_REQUESTED", "TOOL_CALL_FAILED"]


async def test_a_node_takes_json_text_and_raises_what_is_wrong_with_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    file = tmp_path_factory.mktemp("tools") / "sums.py"
    file.write_text("from toolpost import tool\n\n\n@tool\ndef double(n: int) -> int:\n    return 2 * n\n")
    config = ExternalToolConfig(name="sums", transport=TransportType.PYTHON, connection=str(file))
    async with ToolNode(config, ToolRegistry()) as node:
        assert await node.call("double", '{"n": 21}') == 42
        with pytest.raises(ToolValidationError, match="the arguments are not JSON"):
            await node.call("double", '{"n": ')
