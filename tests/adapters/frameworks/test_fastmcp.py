"""The adapter for FastMCP: a server with the tools of a Toolbox, and its client."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.elicitation import ElicitResult
from mcp_types import CallToolResult, InputRequiredResult, TextContent

from tests.adapters.frameworks.driver import Call, Driver, Result, Run
from tests.adapters.frameworks.shelf import Shelf
from tests.adapters.frameworks.suite import ANN, BOSS, AdapterTests, eventually
from toolpost import Toolbox, ToolContext
from toolpost.adapters import WorkflowTool, extract_tools, tool_table
from toolpost.adapters.fastmcp import OUTCOME, provider
from toolpost.schema.json_values import is_object


class FastMCPServer:
    """A client that makes calls as its model decides; it does not retry before it is resumed."""

    has_data = True

    async def run(self, box: Toolbox, calls: Sequence[Call], *, user: str | None = None) -> Run:
        server = FastMCP[None]("shelf", providers=[provider(box, user=user, wait_s=0)])
        return await self._go_on(server, calls, Run({}, [], None, {}))

    async def resume(self, run: Run) -> Run:
        server, calls, states = run.state
        return await self._go_on(server, calls, run._replace(state=states))

    async def _go_on(self, server: FastMCP[None], calls: Sequence[Call], run: Run) -> Run:
        left = [call for call in calls if call.id not in run.results]
        async with Client(server) as client:
            replies = await asyncio.gather(*(request(client, call, run.state.get(call.id)) for call in left))
        replied = dict(zip([call.id for call in left], replies, strict=True))
        ended = {**run.results, **{key: read(one) for key, one in replied.items() if isinstance(one, CallToolResult)}}
        asked = {key: one for key, one in replied.items() if isinstance(one, InputRequiredResult)}
        waiting = [(one.meta or {})[OUTCOME]["pending_id"] for one in asked.values()]
        states = {key: one.request_state for key, one in asked.items()}
        results = {call.id: ended[call.id] for call in calls if call.id in ended}
        return Run(results, waiting, None if waiting else "done", (server, calls, states))


async def request(client: Client[Any], call: Call, state: str | None) -> CallToolResult | InputRequiredResult:
    arguments = cast("dict[str, Any]", call.arguments)
    return await client.session.call_tool(call.name, arguments, request_state=state, allow_input_required=True)


def read(reply: CallToolResult) -> Result:
    (block,) = reply.content
    assert isinstance(block, TextContent)
    data: Any = (reply.meta or {}).get(OUTCOME)
    return Result(block.text, bool(reply.is_error), data if is_object(data) else None)


async def decline(*_: Any) -> ElicitResult[Any]:
    return ElicitResult(action="decline")


class TestFastMCP(AdapterTests):
    @pytest.fixture
    def driver(self) -> Driver:
        return FastMCPServer()

    async def test_arguments_that_are_a_broken_text_are_a_failure(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        with pytest.raises(ValueError, match="valid dictionary"):  # no request may have such arguments
            await driver.run(box, [Call("bad_3", "add", '{"a": 2, ')])

    async def test_a_client_that_retries_gets_the_result_after_the_approval(self, box: Toolbox, shelf: Shelf) -> None:
        async with Client(FastMCP[None]("shelf", providers=[provider(box, user=ANN)])) as client:
            calling = asyncio.create_task(client.call_tool("wipe", {"disk": "sda"}))
            (pending_id,) = await eventually(box, 1)
            await box.approve(pending_id, by=BOSS)
            result = await calling

        assert not result.is_error
        assert shelf.wiped == [("sda", ANN)]

    async def test_a_client_that_is_not_answered_in_time_gets_the_pending_action(self, box: Toolbox) -> None:
        async with Client(FastMCP[None]("shelf", providers=[provider(box, user=ANN, wait_s=0)])) as client:
            result = await client.call_tool("wipe", {"disk": "sda"}, raise_on_error=False)

        (waiting,) = await box.pending.list(by=BOSS)
        assert result.is_error
        assert result.meta is not None
        assert result.meta[OUTCOME]["pending_id"] == waiting.id

    async def test_a_session_based_client_is_prompted_to_check_again(self, box: Toolbox, shelf: Shelf) -> None:
        prompts: list[str] = []

        async def approve_elsewhere(message: str, *_: Any) -> ElicitResult[Any]:
            prompts.append(message)
            (waiting,) = await box.pending.list(by=BOSS)
            await box.approve(waiting.id, by=BOSS)
            return ElicitResult(action="accept", content={"value": True})

        server = FastMCP[None]("shelf", providers=[provider(box, user=ANN, wait_s=30)])
        async with Client(server, mode="legacy", elicitation_handler=approve_elsewhere) as client:
            result = await client.call_tool("wipe", {"disk": "sda"})

        assert not result.is_error
        assert shelf.wiped == [("sda", ANN)]
        (prompt,) = prompts
        assert "Allow wipe?" in prompt

    @pytest.mark.parametrize("handler", [None, decline])
    async def test_a_session_based_client_that_does_not_wait_gets_an_error_with_the_pending_action(
        self, box: Toolbox, handler: Any
    ) -> None:
        server = FastMCP[None]("shelf", providers=[provider(box, user=ANN)])
        async with Client(server, mode="legacy", elicitation_handler=handler) as client:
            result = await client.call_tool("wipe", {"disk": "sda"}, raise_on_error=False)

        (waiting,) = await box.pending.list(by=BOSS)
        assert result.is_error
        assert (result.meta or {})[OUTCOME]["pending_id"] == waiting.id

    async def test_progress_is_sent_to_the_client(self, box: Toolbox) -> None:
        received: list[tuple[float, float | None, str | None]] = []

        async def receive(progress: float, total: float | None, message: str | None) -> None:
            received.append((progress, total, message))

        async with Client(FastMCP[None]("shelf", providers=[provider(box)])) as client:
            await client.call_tool("page", progress_handler=receive)

        assert received == [(0.5, 1, "half of it")]

    async def test_tools_have_the_names_and_hints_of_the_catalog(self, box: Toolbox) -> None:
        async with Client(FastMCP[None]("shelf", providers=[provider(box, only=["add", "wipe"])])) as client:
            tools = {tool.name: tool for tool in await client.list_tools()}

        assert set(tools) == {"add", "wipe"}
        assert tools["add"].input_schema["required"] == ["a", "b"]
        hints = [tools[name].annotations for name in ("add", "wipe")]
        assert [(hint.read_only_hint, hint.destructive_hint) for hint in hints if hint] == [(True, None), (False, True)]

    async def test_the_tools_of_a_table_are_served(self, box: Toolbox) -> None:
        schema = {"type": "object", "properties": {"rows": {"type": "integer"}}, "required": ["rows"]}
        table = tool_table([WorkflowTool("clean the table", "Clean it.", schema, b"steps")])

        async def run_workflow(_: WorkflowTool, parameters: dict[str, Any], __: ToolContext) -> Any:
            return {"cleaned": parameters["rows"]}

        rows = await extract_tools(table, box=box, run_workflow=run_workflow)
        async with Client(FastMCP[None]("tables", providers=[provider(rows)])) as client:
            result = await client.call_tool("clean_the_table", {"rows": 3})
            refused = await client.call_tool("clean_the_table", {"rows": "three"}, raise_on_error=False)

        assert result.structured_content == {"cleaned": 3}
        assert refused.is_error
