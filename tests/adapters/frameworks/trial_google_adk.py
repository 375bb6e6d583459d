"""The adapter for Google ADK, in a separate environment: `make test-frameworks` runs this."""

import itertools
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import ValidationError

from tests.adapters.frameworks.driver import Call, Driver, Result, Run
from tests.adapters.frameworks.shelf import Shelf
from tests.adapters.frameworks.suite import AdapterTests
from toolpost import Toolbox
from toolpost.adapters.google_adk import confirmations, toolset

CONFIRMATION = "adk_request_confirmation"
SESSIONS = itertools.count()


class Scripted(BaseLlm):  # type: ignore[misc, unused-ignore]
    """A model that makes some calls, and then says that it is done."""

    calls: list[Any]

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse]:
        parts = [part for content in llm_request.contents for part in content.parts]
        answered = any(part.function_response for part in parts)
        said = [types.Part(text="done")] if answered else [types.Part(function_call=call) for call in self.calls]
        yield LlmResponse(content=types.Content(role="model", parts=said))


class GoogleADK:
    has_data = False

    async def run(self, box: Toolbox, calls: Sequence[Call], *, user: str | None = None) -> Run:
        made = [types.FunctionCall(id=call.id, name=call.name, args=dict(call.arguments)) for call in calls]  # type: ignore[arg-type, unused-ignore]
        agent = LlmAgent(name="tester", model=Scripted(model="m", calls=made), tools=[toolset(box, user=user)])
        runner = InMemoryRunner(agent, app_name="trial")
        session = await runner.session_service.create_session(
            app_name="trial", user_id="ann", session_id=str(next(SESSIONS))
        )
        return await self._go_on(box, runner, session.id, [types.Part(text="go")])

    async def resume(self, run: Run) -> Run:
        box, runner, session_id, events = run.state
        return await self._go_on(box, runner, session_id, await confirmations(box, events))

    async def _go_on(self, box: Toolbox, runner: Any, session_id: str, parts: list[types.Part]) -> Run:
        if parts:
            message = types.Content(role="user", parts=parts)
            async for _ in runner.run_async(user_id="ann", session_id=session_id, new_message=message):
                pass
        session = await runner.session_service.get_session(app_name="trial", user_id="ann", session_id=session_id)
        responses = [one for event in session.events for one in event.get_function_responses()]
        results = {
            one.id: Result(str(next(iter(one.response.values()))), "error" in one.response)
            for one in responses
            if one.name != CONFIRMATION
        }
        confirmed = {one.id for one in responses if one.name == CONFIRMATION}
        waiting = [
            call.args["toolConfirmation"]["payload"]["pending_id"]
            for event in session.events
            for call in event.get_function_calls()
            if call.name == CONFIRMATION and call.id not in confirmed
        ]
        texts = [part.text for event in session.events for part in event.content.parts if part.text]
        return Run(results, waiting, None if waiting else texts[-1], (box, runner, session_id, session.events))


class TestGoogleADK(AdapterTests):
    @pytest.fixture
    def driver(self) -> Driver:
        return GoogleADK()

    async def test_arguments_that_are_a_broken_text_are_a_failure(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        with pytest.raises(ValidationError):  # no message may have such a call
            types.FunctionCall(args='{"a": 2, ')
