"""Requests of calls to an MCP server, and the input that the server requests while it handles them.

A server may request input from a person, a completion from a model, or folders. The MCP client that made the call
answers the requests that it declared and the operator permits. A person answers other requests for input; model and
folders are those of the Toolbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp_types import CreateMessageResult, ElicitResult, ErrorData, ListRootsResult
from mcp_types.jsonrpc import INTERNAL_ERROR

from toolpost.contracts.calls import AuthorizedCall
from toolpost.contracts.errors import ToolClientError, ToolOutputError
from toolpost.contracts.questions import Answer, Question
from toolpost.policy.progress import ProgressReporter
from toolpost.schema.json_values import is_object
from toolpost.sources.mcp.callbacks import UI_EXTENSION, ClientCapabilities
from toolpost.sources.mcp.elicitation import (
    CANCELLED,
    ELICIT,
    HELD,
    InputRequired,
    build_question,
    build_responses,
    elicitation_answers,
    next_question_number,
    parse_input_required,
    parse_url_elicitations,
)
from toolpost.sources.mcp.errors import to_tool_error
from toolpost.sources.mcp.jsonrpc import OnProgress
from toolpost.sources.mcp.session import McpSession, RequestOptions
from toolpost.sources.mcp.session_calls import InputRequested

if TYPE_CHECKING:
    from toolpost.contracts.context import CallingClient, ToolContext

    Raw = dict[str, Any]

_MAX_ROUNDS = 10
_MAX_HOLD_S = 900.0
_PROGRESS_PER_SECOND = 20.0
_TASKS = "io.modelcontextprotocol/tasks"
_EXTENSIONS = (_TASKS, UI_EXTENSION)  # those of a client that are passed on
_MIN_POLL_S, _MAX_POLL_S = 0.1, 5.0
_LONGEST_TASK_S = 24 * 3600.0
_CANCEL_WAIT_S = 5.0
_CAPABILITY = {"sampling/createMessage": "sampling", "roots/list": "roots"}


class McpCalls:
    """The requests of one source."""

    def __init__(self, source: str, capabilities: ClientCapabilities, *, elicitation: bool) -> None:
        self.source = source
        self._capabilities = capabilities
        self._elicitation = elicitation
        self._own = capabilities.declared(elicitation=elicitation)
        self._own_and_tasks: Raw = {**self._own, "extensions": {_TASKS: {}}}

    async def run(self, session: McpSession, call: AuthorizedCall, method: str, params: Raw) -> Raw | Question:
        """Send the request of a call and return its raw result, or a question of the server."""
        client = client_of(call)
        try:
            if client is None:
                return await self._send(session, call, method, params)
            with session.calls.heard_by(call.request.principal, client):
                return await self._send(session, call, method, params)
        except ToolClientError as error:
            question = self._pages_question(error, call) if self._elicitation else None
            if question is None:
                raise
            return question

    def _send(
        self, session: McpSession, call: AuthorizedCall, method: str, params: Raw
    ) -> Coroutine[Any, Any, Raw | Question]:
        if session.client_session.modern:
            return _ModernRequest(self, session, call, method, params).run()
        if self._elicitation or client_of(call) is not None:
            return self._run_legacy(session, call, method, params)
        return session.request(method, params, RequestOptions(progress_callback(call.context)))

    def _pages_question(self, error: ToolClientError, call: AuthorizedCall) -> Question | None:
        """Build the question of a server that rejects the call, without effect, until a user has visited its pages."""
        pages = parse_url_elicitations(error.__cause__)
        if not pages:
            return None
        number = next_question_number(call.request.answers)
        return build_question(self.source, pages, {"pages": True}, number=number, deliver_denial=False)

    # ------------------------------------------------------------------ input that a server requests

    def declared(self, client: CallingClient | None) -> Raw:
        """Return the capabilities to declare for one request: those of the Toolbox and of the call's client.

        Tasks and MCP Apps are declared only if the client supports them; a server that needs them then reports that.
        """
        if client is None:
            return self._own_and_tasks
        given = client.capabilities
        passed = {name: given[name] for name in ("sampling", "roots") if self._is_for_client(name, client)}
        asked = {"elicitation": given["elicitation"]} if self._elicitation and "elicitation" in given else {}
        known = given.get("extensions")
        extensions: Raw = {name: known[name] for name in _EXTENSIONS if name in known} if is_object(known) else {}
        return {**self._own, **passed, **asked, **({"extensions": extensions} if extensions else {})}

    def _is_for_client(self, capability: str, client: CallingClient | None) -> bool:
        """Return whether the client of a call answers for a capability, as it can and the operator permits."""
        if client is None or not capability or capability not in client.capabilities:
            return False
        return self._capabilities.passes_on(capability)

    def sort_requests(self, needed: InputRequired, client: CallingClient | None) -> tuple[Raw, Raw]:
        """Divide the requests of a server into those for the client of the call and those that are answered here."""
        asked: Raw = {}
        if client is not None and "elicitation" in client.capabilities:
            asked |= needed.elicitations
        for key, request in needed.client_requests.items():
            if self._is_for_client(_CAPABILITY.get(str(request.get("method")), ""), client):
                asked[key] = request
        here = {key: request for key, request in needed.client_requests.items() if key not in asked}
        return asked, here

    def parse_needed_input(self, raw: Raw) -> InputRequired:
        """Parse a result that requires input; raise ToolClientError if elicitation is off."""
        needed = parse_input_required(raw)
        if needed.elicitations and not self._elicitation:
            raise ToolClientError(
                f"MCP tool error: {self.source!r} requests input from a user, which is not available here"
            )
        return needed

    async def answer_here(self, request: Raw) -> Raw:
        """Answer a request of the server with the model or the folders of the Toolbox."""
        response = await self._capabilities.handle_request(request)
        if response is None:
            method = request.get("method")
            raise ToolClientError(f"MCP tool error: {self.source!r} requests {method!r}, which is not available here")
        return response

    def question(self, call: AuthorizedCall, people: Raw, state: Raw, *, requests: Raw | None = None) -> Question:
        number = next_question_number(call.request.answers)
        return build_question(self.source, people, state, number=number, requests=requests)

    # ------------------------------------------------------------------ the older protocol

    async def _run_legacy(self, session: McpSession, call: AuthorizedCall, method: str, params: Raw) -> Raw | Question:
        """Send a request in the older protocol: continue a held call, or start one unless its first run was lost."""
        request = call.permitted.validated.request
        in_flight = session.calls.find_held(request.call_id) if request.answers else None
        if in_flight is not None:
            last = elicitation_answers(request.answers)[-1]
            in_flight.resolve(last.state[HELD], last)
        elif request.answers and (question := lost_call_question(call, self.source)) is not None:
            return question
        else:
            pending = await session.start(method, params, RequestOptions(progress_callback(call.context)))
            in_flight = session.calls.begin(call, session, pending)
        outcome = await in_flight.wait()
        if not isinstance(outcome, InputRequested):
            return outcome
        asked = outcome.request
        number = next_question_number(request.answers)
        people = {HELD: asked} if asked["method"] == ELICIT else {}
        try:
            return build_question(self.source, people, {HELD: asked}, number=number, held=True, requests={HELD: asked})
        except ToolClientError:
            in_flight.cancel()
            raise

    async def handle_elicitation(self, session: McpSession, context: Any, params: Any) -> ElicitResult:
        """Handle an elicitation of an older session; return when a user has answered."""
        in_flight = session.calls.find_requester()
        request = {"method": ELICIT, "params": _plain(params)}
        response = CANCELLED if in_flight is None else await in_flight.request_input(request, hold_s=_MAX_HOLD_S)
        return ElicitResult.model_validate(response)

    async def handle_sampling(self, session: McpSession, context: Any, params: Any) -> CreateMessageResult | ErrorData:
        """Handle a request of an older session for a model: that of the call's client, or of the Toolbox."""
        answered = await self._handle(session, {"method": "sampling/createMessage", "params": _plain(params)})
        return answered if isinstance(answered, ErrorData) else CreateMessageResult.model_validate(answered)

    async def handle_roots(self, session: McpSession, context: Any) -> ListRootsResult | ErrorData:
        """Handle a request of an older session for folders: those of the call's client, or of the Toolbox."""
        answered = await self._handle(session, {"method": "roots/list", "params": {}})
        return answered if isinstance(answered, ErrorData) else ListRootsResult.model_validate(answered)

    async def _handle(self, session: McpSession, request: Raw) -> Raw | ErrorData:
        in_flight = session.calls.find_requester()
        capability = _CAPABILITY[request["method"]]
        if in_flight is not None and self._is_for_client(capability, in_flight.client):
            response = await in_flight.request_input(request, hold_s=_MAX_HOLD_S)
            if response is CANCELLED:
                return ErrorData(code=INTERNAL_ERROR, message=f"the client did not answer {request['method']}")
            return response
        try:
            return await self.answer_here(request)
        except ToolClientError as error:
            return ErrorData(code=INTERNAL_ERROR, message=error.message)


class _ModernRequest:
    """One request in the stateless protocol: each retry carries all answers and the server's state."""

    def __init__(self, calls: McpCalls, session: McpSession, call: AuthorizedCall, method: str, params: Raw) -> None:
        self._calls = calls
        self._session = session
        self._call = call
        self._method = method
        self._params = params
        self._client = client_of(call)
        self._on_progress = progress_callback(call.context)

    async def run(self) -> Raw | Question:
        known = self._call.permitted.validated.request.answers
        answers = elicitation_answers(known) if known else []
        last = answers[-1] if answers and "people" in answers[-1].state else None
        if last is None:
            given = None if self._client is None else self._client.input_responses
            return await self._rounds({**self._params, "inputResponses": dict(given)} if given else self._params)
        responses = await self._responses(last)
        state: Raw = last.state
        if later := state.get("later"):
            return self._question(later, {}, responses, state)
        if task_id := state.get("task"):
            await self._request("tasks/update", {"taskId": task_id, "inputResponses": responses})
            return await self._follow(task_id)
        return await self._rounds({**self._params, **_input_params(responses, state["request_state"])})

    async def _responses(self, answer: Answer) -> Raw:
        """Return all known responses to the requests of a question: those of the answer and those of the Toolbox."""
        state: Raw = answer.state
        asked: Raw = state.get("client", {})
        given = answer.responses or {}
        own = {
            key: given[key] if key in given else await self._calls.answer_here(request)
            for key, request in asked.items()
        }
        return {**state["lent"], **own, **build_responses(state["people"], answer)}

    async def _rounds(self, request: Raw) -> Raw | Question:
        for number in range(_MAX_ROUNDS):
            raw = await self._request(self._method, request)
            kind = raw.get("resultType", "complete")
            if kind == "complete":
                return raw
            if kind == "task":
                return await self._begin_task(raw)
            if kind != "input_required":
                raise ToolOutputError(f"the MCP server returned a result of the unknown type {kind!r}")
            needed = self._calls.parse_needed_input(raw)
            answered = await self._answer_or_question(needed, {"request_state": needed.state})
            if isinstance(answered, Question):
                return answered
            request = {**self._params, **_input_params(answered, needed.state)}
            if not answered:
                await asyncio.sleep(min(1.0, 0.1 * 2**number))  # the server needs time, not input
        source = self._calls.source
        raise ToolClientError(f"MCP tool error: {source!r} still needs input after {_MAX_ROUNDS} rounds")

    async def _answer_or_question(self, needed: InputRequired, state: Raw) -> Raw | Question:
        """Answer the requests that can be answered here; return a question if others remain."""
        asked, here = self._calls.sort_requests(needed, self._client)
        responses = {key: await self._calls.answer_here(request) for key, request in here.items()}
        people = {key: request for key, request in needed.elicitations.items() if key not in asked}
        if not asked and not people:
            return responses
        return self._question(people, asked, responses, state)

    def _question(self, people: Raw, asked: Raw, responses: Raw, state: Raw) -> Question:
        """Build a question for a user; requests that the client of the call can answer come first.

        The state is stored with the paused call, so its keys stay as they are.
        """
        kept: Raw = {key: state[key] for key in ("request_state", "task") if key in state}
        if not asked:
            whole: Raw = {"people": people, "lent": responses, **kept}
            return self._calls.question(self._call, people, whole)
        forms = {key: request for key, request in asked.items() if request.get("method") == ELICIT}
        others = {key: request for key, request in asked.items() if key not in forms}
        whole = {"people": forms, "client": others, "lent": responses, "later": people, **kept}
        return self._calls.question(self._call, forms, whole, requests=asked)

    # ------------------------------------------------------------------ tasks

    async def _begin_task(self, raw: Raw) -> Raw | Question:
        """Follow a call that the server runs as a task; its deadline is the lifetime of the task."""
        task_id = raw.get("taskId")
        if not isinstance(task_id, str):
            raise ToolOutputError("the MCP server runs the call as a task, but returned no taskId")
        if self._client is not None:
            self._client.became_task()
            ttl = raw.get("ttlMs")
            kept_s = ttl / 1000 if isinstance(ttl, int | float) else _LONGEST_TASK_S
            self._call.context().extend_deadline(min(kept_s, _LONGEST_TASK_S))
        return await self._follow(task_id, raw)

    async def _follow(self, task_id: str, raw: Raw | None = None) -> Raw | Question:
        """Poll a task until it has ended or needs input; cancel it with the call."""
        try:
            while True:
                raw = raw or await self._request("tasks/get", {"taskId": task_id})
                ended = await self._step(task_id, raw)
                if ended is not None:
                    return ended
                raw = None
        except asyncio.CancelledError:
            with suppress(Exception):  # the server may be gone as well
                async with asyncio.timeout(_CANCEL_WAIT_S):
                    await self._request("tasks/cancel", {"taskId": task_id})
            raise

    async def _step(self, task_id: str, raw: Raw) -> Raw | Question | None:
        match raw.get("status"):
            case "completed":
                result = raw.get("result")
                if not is_object(result):
                    raise ToolOutputError("the MCP server's task has ended without a result")
                return result
            case "failed":
                raise to_tool_error(_task_error(raw.get("error")))
            case "cancelled":
                raise ToolClientError("MCP tool error: the server cancelled the task")
            case "input_required" if raw.get("inputRequests"):
                needed = self._calls.parse_needed_input({**raw, "requestState": None})
                answered = await self._answer_or_question(needed, {"request_state": None, "task": task_id})
                if isinstance(answered, Question):
                    return answered
                await self._request("tasks/update", {"taskId": task_id, "inputResponses": answered})
                return None
            case _:
                interval = raw.get("pollIntervalMs")
                pause_s = interval / 1000 if isinstance(interval, int | float) else 1.0
                await asyncio.sleep(min(_MAX_POLL_S, max(_MIN_POLL_S, pause_s)))
                return None

    async def _request(self, method: str, params: Raw) -> Raw:
        log_level = None if self._client is None else self._client.log_level
        options = RequestOptions(self._on_progress, self._calls.declared(self._client), log_level)
        return await self._session.request(method, params, options)


def client_of(call: AuthorizedCall) -> CallingClient | None:
    """Return the MCP client that made a call, if one did."""
    context = call.permitted.validated.request.context
    return None if context is None else context.client


def lost_call_question(call: AuthorizedCall, source: str) -> Question | None:
    """Build the question if a held call on a lost session had its effect; return None if it may run again.

    A permission to run again is valid once: it is bound to the number of answers at that time.
    """
    spec, answers = call.tool.spec, elicitation_answers(call.request.answers)
    if spec.replay != "unsafe" or not answers or HELD not in answers[-1].state:
        return None
    state = {"rounds": len(answers)}
    permission = call.request.answers.get("unknown")
    if permission is not None and permission.state == state:
        return None
    prompt = f"{spec.name} was interrupted while {source} waited for an answer. Did it happen?"
    return Question(kind="unknown", prompt=prompt, reason="outcome_unknown", key="unknown", state=state)


def progress_callback(context: Callable[[], ToolContext]) -> OnProgress:
    """Return the callback that emits the progress of a call, up to a rate limit."""
    relay: ProgressReporter | None = None

    def report(progress: float, total: float | None, message: str | None) -> None:
        nonlocal relay
        relay = relay or ProgressReporter(context, per_second=_PROGRESS_PER_SECOND)
        text = message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}")
        relay.report(text, fraction=None if not total else progress / total, is_last=progress == total)

    return report


def _input_params(responses: Raw, state: str | None) -> Raw:
    return {
        **({"inputResponses": responses} if responses else {}),
        **({} if state is None else {"requestState": state}),
    }


def _plain(params: Any) -> Raw:
    plain: Raw = params.model_dump(by_alias=True, mode="json", exclude_none=True)
    return plain


def _task_error(error: Any) -> MCPError:
    """Return the error of a failed task as an error of the call."""
    given: Mapping[str, Any] = error if is_object(error) else {}
    code, message = given.get("code"), given.get("message")
    return MCPError(
        code=code if isinstance(code, int) else INTERNAL_ERROR,
        message=message if isinstance(message, str) else "the task failed",
        data=given.get("data"),
    )
