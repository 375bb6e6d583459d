"""The adapter for Strands Agents, in a separate environment: `make test-frameworks` runs this."""

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from strands import Agent
from strands.models import Model

from tests.adapters.frameworks.driver import Call, Driver, Result, Run
from tests.adapters.frameworks.suite import AdapterTests
from toolpost import Toolbox
from toolpost.adapters.strands import responses, tools


class Scripted(Model):  # type: ignore[misc, unused-ignore]
    """A model that makes some calls, and then says that it is done."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls

    def update_config(self, **_: Any) -> None:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncGenerator[Any, None]:
        yield {"messageStart": {"role": "assistant"}}
        if any("toolResult" in content for message in messages for content in message["content"]):
            yield {"contentBlockDelta": {"delta": {"text": "done"}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "end_turn"}}
            return
        for call in self._calls:
            written = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call.id, "name": call.name}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": written}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use"}}


class Strands:
    has_data = False

    async def run(self, box: Toolbox, calls: Sequence[Call], *, user: str | None = None) -> Run:
        agent = await self._agent(box, calls, user)
        return _read((box, calls, user), agent, await agent.invoke_async("go"))

    async def resume(self, run: Run) -> Run:
        made_of, snapshot, result = run.state
        agent = await self._agent(*made_of)
        agent.load_snapshot(snapshot)
        return _read(made_of, agent, await agent.invoke_async(responses(result)))

    async def _agent(self, box: Toolbox, calls: Sequence[Call], user: str | None) -> Any:
        return Agent(model=Scripted(calls), tools=await tools(box, user=user), callback_handler=None)


def _read(made_of: tuple[Any, ...], agent: Any, result: Any) -> Run:
    found = [
        content["toolResult"] for message in agent.messages for content in message["content"] if "toolResult" in content
    ]
    results = {one["toolUseId"]: Result(one["content"][0]["text"], one["status"] == "error") for one in found}
    waiting = [interrupt.reason["pending_id"] for interrupt in result.interrupts or []]
    said = None if waiting else str(result).strip()
    return Run(results, waiting, said, (made_of, agent.take_snapshot(preset="session"), result))


class TestStrands(AdapterTests):
    @pytest.fixture
    def driver(self) -> Driver:
        return Strands()
