"""An MCP server as a source of tools: its sessions, and the calls that run on them.

A server may ask for a person, for a model, or for folders. The MCP client that made the call answers what it declared
and the operator permits; a person is asked otherwise, and model and folders are those of the Toolbox.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from mcp import MCPError
from mcp_types import CreateMessageResult, ElicitResult, ErrorData, ListRootsResult
from mcp_types.jsonrpc import INTERNAL_ERROR
from msgspec.structs import replace

from toolpost.contracts.calls import AuthorizedCall, Credential, ToolOutput
from toolpost.contracts.errors import (
    ToolAuthError,
    ToolClientError,
    ToolConnectionError,
    ToolOutputError,
    ToolSourceDownError,
    ToolTimeoutError,
)
from toolpost.contracts.lines import RateLimit
from toolpost.contracts.outcomes import SERVER_META
from toolpost.contracts.questions import Question
from toolpost.contracts.sources import ServerContents, SourceHealth, SourceListener
from toolpost.schema.json_size import SMALL, CheckedJson, JsonLimits, too_large
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.validator import compile_validator
from toolpost.sources.mcp.callbacks import ClientCapabilities, SessionCallbacks
from toolpost.sources.mcp.contents import ResourceNews, list_contents
from toolpost.sources.mcp.elicitation import (
    CANCELLED,
    ELICIT,
    HELD,
    Asked,
    build_question,
    build_responses,
    elicitation_answers,
    next_question_number,
    parse_input_required,
    parse_url_elicitations,
)
from toolpost.sources.mcp.endpoint import parse_endpoint
from toolpost.sources.mcp.errors import to_tool_error
from toolpost.sources.mcp.metadata import UI_EXTENSION, passed_meta, with_passed_meta
from toolpost.sources.mcp.session import McpConnection, McpSession, RequestOptions, limit_sdk_logs
from toolpost.sources.mcp.tools import AnonymousListing, ConnectionMonitor, UtilityTool, list_tools
from toolpost.transports.base import BaseSource, Services
from toolpost.web.large_json import check_large_json
from toolpost.web.session_pool import SessionPool

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import CallingClient, ToolContext
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.questions import Answer
    from toolpost.contracts.spec import Tool
    from toolpost.sources.mcp.elicitation import InputRequired
    from toolpost.sources.mcp.jsonrpc import OnProgress
    from toolpost.sources.mcp.tools import ServerTool, ToolListing

    Raw = dict[str, Any]

_RELAYED = {"resources_read": "resources/read", "prompts_get": "prompts/get"}
_MAX_ROUNDS = 10
_MAX_BLOCKS = 10_000
_MAX_SPELLED = 4096
_LIMITS = JsonLimits()
_MAX_HOLD_S = 900.0
_PROGRESS_PER_SECOND = 20.0
_TASKS = "io.modelcontextprotocol/tasks"
_EXTENSIONS = (_TASKS, UI_EXTENSION)  # those of a client that are passed on
_MIN_POLL_S, _MAX_POLL_S = 0.1, 5.0
_LONGEST_TASK_S = 24 * 3600.0
_CANCEL_WAIT_S = 5.0


class McpSource(BaseSource):
    """One MCP server, with a session for each credential that calls it.

    The credential of the services lists the tools. Their `roots` are the folders that the server may know of, and
    `listings` is the folder that caches the last listing.
    """

    def __init__(
        self,
        config: ExternalToolConfig,
        services: Services,
    ) -> None:
        limit_sdk_logs()
        self._values = JsonLimits.of(config)
        super().__init__(config, services)
        credential = services.credential
        self._server = services.servers.get(config.name)
        self._network = services.network
        self._endpoint = parse_endpoint(config)
        capabilities = ClientCapabilities(
            services.roots if config.mcp.roots is None else config.mcp.roots,
            services.chat_model if config.mcp.sampling else None,
            sampling=config.mcp.sampling,
            pass_roots=config.mcp.roots is None,
        )
        self._calls = McpCalls(config.name, capabilities, elicitation=config.mcp.elicitation)
        self._callbacks = SessionCallbacks(self, self._calls, capabilities, elicitation=config.mcp.elicitation)
        self._sessions = SessionPool(config.name, self._open_session, pinned=credential)
        self._connect = partial(self._sessions.get, credential)
        self._anonymous = AnonymousListing(self, services.listings)
        self._monitor = ConnectionMonitor(
            self._callbacks, self._connect, self._list, anonymous=self._anonymous, poll_s=config.mcp.poll_s
        )
        self._closed = False
        self._contents = ServerContents()
        self._listing_contents: asyncio.Task[None] | None = None
        self._news = ResourceNews(self._connect, self._callbacks.publish_update)

    @property
    def contents(self) -> ServerContents:
        """What the server listed last besides tools."""
        return self._contents

    @property
    def health(self) -> SourceHealth:
        """The current health of the connection."""
        if self._closed:
            return SourceHealth("closed")
        if self._anonymous.requires_account:
            return self._anonymous.health
        if self._sessions.find(self.credential) is not None:
            return SourceHealth("up")
        return self._monitor.health

    async def _open_session(self, credential: Credential) -> McpSession:
        connection = McpConnection(self.config, self._endpoint, credential, network=self._network, server=self._server)
        session = McpSession(connection, self._callbacks.for_session)
        await session.open()
        return session

    async def _list(self, session: McpSession, *, key: str = "") -> ToolListing:
        try:
            async with asyncio.timeout(self.config.connect_timeout_s):
                listing = await list_tools(session, self)
        except TimeoutError as error:
            seconds = f"{self.config.connect_timeout_s:g} s"
            raise ToolTimeoutError(f"{self.name!r} did not list its tools within {seconds}", cause=error) from error
        self.problems = listing.problems
        await asyncio.to_thread(self._anonymous.save, listing, key=key)
        if listing.contents is not None:
            self._set_contents(listing.contents)
        elif self._listing_contents is None or self._listing_contents.done():
            self._listing_contents = asyncio.get_running_loop().create_task(self._list_contents(session))
        return listing

    async def _list_contents(self, session: McpSession) -> None:
        """List what there is besides tools, where that takes longer than a listing of tools waits for it."""
        self._set_contents(await list_contents(session))

    def _set_contents(self, contents: ServerContents) -> None:
        changed, self._contents = contents != self._contents, contents
        if changed:
            self._callbacks.publish_contents()

    async def recall(self) -> Sequence[ServerTool]:
        """Return the tools of the last listing; a call to one connects first."""
        found, self.problems = await asyncio.to_thread(self._anonymous.saved_tools)
        return found

    async def discover(self) -> Sequence[ServerTool]:
        """Connect and list the tools; `problems` names those left out.

        A server that lists only for accounts has the tools of its last known listing.
        """
        try:
            session = await self._connect()
            listing = await self._list(session)
        except ToolAuthError as refused:
            found, self.problems = self._anonymous.known_tools() if self._anonymous.note_refusal(refused) else ([], [])
            if not found:
                raise
            return found
        self._monitor.resume_from(session, listing)
        return listing.tools

    @property
    def refusal(self) -> ToolError | None:
        """The last 401 or 403 to a listing."""
        return self._anonymous.refusal

    async def list_for(self, credential: Credential) -> None:
        """List with a user's own credential and publish the tools known for all users."""
        try:
            listing = await self._list(await self._sessions.get(credential), key=credential.key)
        except ToolAuthError as refused:
            self._anonymous.refusal = refused
            raise
        await self._callbacks.publish_tools((await asyncio.to_thread(self._anonymous.known_tools))[0], listing.problems)

    def watch(self, listener: SourceListener) -> None:
        """Keep the session open and the tools current from now on."""
        self._callbacks.listener = listener
        if not self._anonymous.requires_account:
            self._monitor.start()

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Run a call on its credential's session; reconnect once when it ended before anything was sent."""
        session = self._sessions.find(call.credential)
        if session is None:
            question = ask_lost_call_outcome(call, self.name)
            if question is not None:  # asked before connecting: it does not depend on the server
                return question
            session = await self._session(call.credential)
        try:
            return await self._run_on(session, call)
        except ToolConnectionError as error:
            if error.sent or not session.is_closed:
                raise
        return await self._run_on(await self._session(call.credential), call)

    async def _session(self, credential: Credential) -> McpSession:
        """Return the live session of a credential; raise ToolSourceDownError when the server cannot be reached."""
        try:
            return await self._sessions.get(credential)
        except ToolConnectionError as error:
            raise ToolSourceDownError(error.message, retry_after_s=error.retry_after_s, cause=error) from error

    async def _run_on(self, session: McpSession, call: AuthorizedCall) -> ToolOutput | Question:
        validated = call.permitted.validated
        tool, arguments = validated.tool, validated.arguments
        if not isinstance(tool, UtilityTool):
            return await self._call_tool(session, cast("ServerTool", tool), call)
        client = client_of(call)
        if client is not None and client.relays:
            raw = await self._calls.run(session, call, _RELAYED[tool.remote_name], dict(arguments))
            return raw if isinstance(raw, Question) else ToolOutput(with_passed_meta(raw))
        with session.calls.track(validated.request.principal):
            return await run_utility(session, tool.remote_name, arguments, call.context)

    async def _call_tool(self, session: McpSession, tool: ServerTool, call: AuthorizedCall) -> ToolOutput | Question:
        if tool.has_header_arguments:
            session.client_session.register_header_arguments(tool.remote_name, tool.spec.input_schema)
        params: dict[str, Any] = {"name": tool.remote_name, "arguments": call.permitted.validated.arguments}
        raw = await self._calls.run(session, call, "tools/call", params)
        return raw if isinstance(raw, Question) else await parse_result(raw, call.context, self._values)

    async def complete(self, call: AuthorizedCall, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Complete an argument of a prompt or a template, on the session of the call's credential."""
        async with asyncio.timeout(self.config.timeout_s):
            return await (await self._session(call.credential)).request("completion/complete", dict(params))

    @property
    def subscriptions(self) -> Sequence[str]:
        """The URIs of resources that somebody wants to hear of, one for each who does."""
        return self._news.subscriptions

    async def subscribe(self, uri: str) -> None:
        """Report changes of a resource from now on, as the source's own credential hears of them."""
        await self._news.subscribe(uri)

    async def unsubscribe(self, uri: str) -> None:
        """Report no more changes of a resource."""
        await self._news.unsubscribe(uri)

    async def run_directly(self, tool: Tool, params: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Validate the arguments and run a tool without a router, within `timeout_s`."""
        validator = compile_validator(tool.spec.input_schema)
        arguments = validator.coerce(params)
        validator.check(arguments, tool.spec.name)
        async with asyncio.timeout(self.config.timeout_s):
            return await super().run_directly(tool, arguments, context)

    async def close(self) -> None:
        """Close every session; safe to call twice."""
        self._closed = True
        if self._listing_contents is not None:
            self._listing_contents.cancel()
        try:
            await self._news.stop()
            await self._monitor.stop()
        finally:
            await self._sessions.close()

    def release(self, call_id: str) -> None:
        """Cancel a held call that will get no answer."""
        for session in self._sessions:
            session.calls.release(call_id)


class McpCalls:
    """Runs the requests of one source."""

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
            question = self._ask_to_open_pages(error, call) if self._elicitation else None
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

    def _ask_to_open_pages(self, error: ToolClientError, call: AuthorizedCall) -> Question | None:
        """Build the question of a server that refuses, without effect, until a person has visited its pages."""
        pages = parse_url_elicitations(error.__cause__)
        if not pages:
            return None
        number = next_question_number(call.request.answers)
        return build_question(self.source, pages, {"pages": True}, number=number, deliver_denial=False)

    # ------------------------------------------------------------------ what a server asks for

    def declared(self, client: CallingClient | None) -> Raw:
        """Return the capabilities to declare for one request: what can be answered here, and by the call's client.

        A client that knows no tasks is given none, so that a server which needs them says so; so with MCP Apps.
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
        """Divide what a server asks for in what the client of the call is asked, and what is answered here."""
        asked: Raw = {}
        if client is not None and "elicitation" in client.capabilities:
            asked |= needed.elicitations
        for key, request in needed.client_requests.items():
            if self._is_for_client(_CAPABILITY.get(str(request.get("method")), ""), client):
                asked[key] = request
        here = {key: request for key, request in needed.client_requests.items() if key not in asked}
        return asked, here

    def parse_needed_input(self, raw: Raw) -> InputRequired:
        """Parse a result that asks for input; raise when that input is not on offer."""
        needed = parse_input_required(raw)
        if needed.elicitations and not self._elicitation:
            raise ToolClientError(f"MCP tool error: {self.source!r} wants to ask a person, which is not on offer here")
        return needed

    async def answer_here(self, request: Raw) -> Raw:
        """Answer a request of the server with the model or the folders of the Toolbox."""
        response = await self._capabilities.handle_request(request)
        if response is None:
            method = request.get("method")
            raise ToolClientError(f"MCP tool error: {self.source!r} asks for {method!r}, which is not on offer here")
        return response

    def question(self, call: AuthorizedCall, people: Raw, state: Raw, *, requests: Raw | None = None) -> Question:
        """Build the next question of a call."""
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
        elif request.answers and (question := ask_lost_call_outcome(call, self.source)) is not None:
            return question
        else:
            pending = await session.start(method, params, RequestOptions(progress_callback(call.context)))
            in_flight = session.calls.begin(call, session, pending)
        outcome = await in_flight.wait()
        if not isinstance(outcome, Asked):
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
        """Handle an elicitation of an older session; return when a person has answered."""
        in_flight = session.calls.find_asker()
        request = {"method": ELICIT, "params": _plain(params)}
        response = CANCELLED if in_flight is None else await in_flight.ask(request, hold_s=_MAX_HOLD_S)
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
        in_flight = session.calls.find_asker()
        capability = _CAPABILITY[request["method"]]
        if in_flight is not None and self._is_for_client(capability, in_flight.client):
            response = await in_flight.ask(request, hold_s=_MAX_HOLD_S)
            if response is CANCELLED:
                return ErrorData(code=INTERNAL_ERROR, message=f"the client did not answer {request['method']}")
            return response
        try:
            return await self.answer_here(request)
        except ToolClientError as error:
            return ErrorData(code=INTERNAL_ERROR, message=error.message)


_CAPABILITY = {"sampling/createMessage": "sampling", "roots/list": "roots"}


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
            return self._ask(later, {}, responses, state)
        if task_id := state.get("task"):
            await self._request("tasks/update", {"taskId": task_id, "inputResponses": responses})
            return await self._follow(task_id)
        return await self._rounds({**self._params, **_input_params(responses, state["request_state"])})

    async def _responses(self, answer: Answer) -> Raw:
        """Return all responses that are known with an answer; a person cannot answer what is for a model."""
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
                raise ToolOutputError(f"the MCP server's answer is of a kind that is not known: {kind!r}")
            needed = self._calls.parse_needed_input(raw)
            answered = await self._answer_or_ask(needed, {"request_state": needed.state})
            if isinstance(answered, Question):
                return answered
            request = {**self._params, **_input_params(answered, needed.state)}
            if not answered:
                await asyncio.sleep(min(1.0, 0.1 * 2**number))  # the server needs time, not input
        raise self._never_content()

    async def _answer_or_ask(self, needed: InputRequired, state: Raw) -> Raw | Question:
        """Answer what can be answered here; return the question for the client and for people where there is one."""
        asked, here = self._calls.sort_requests(needed, self._client)
        responses = {key: await self._calls.answer_here(request) for key, request in here.items()}
        people = {key: request for key, request in needed.elicitations.items() if key not in asked}
        if not asked and not people:
            return responses
        return self._ask(people, asked, responses, state)

    def _ask(self, people: Raw, asked: Raw, responses: Raw, state: Raw) -> Question:
        """Build the question for people; what the client of the call can answer comes first, the rest later.

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
        """Follow a call that the server made a task of; it may take as long as the server keeps the task."""
        task_id = raw.get("taskId")
        if not isinstance(task_id, str):
            raise ToolOutputError("the MCP server made a task of the call, but did not say which")
        if self._client is not None:
            self._client.became_task()
            ttl = raw.get("ttlMs")
            kept_s = ttl / 1000 if isinstance(ttl, int | float) else _LONGEST_TASK_S
            self._call.context().extend_deadline(min(kept_s, _LONGEST_TASK_S))
        return await self._follow(task_id, raw)

    async def _follow(self, task_id: str, raw: Raw | None = None) -> Raw | Question:
        """Ask about a task until it has ended or needs input; cancel it with the call."""
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
                answered = await self._answer_or_ask(needed, {"request_state": None, "task": task_id})
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

    def _never_content(self) -> ToolClientError:
        return ToolClientError(f"MCP tool error: {self._calls.source!r} still needs input after {_MAX_ROUNDS} rounds")


def client_of(call: AuthorizedCall) -> CallingClient | None:
    """Return the MCP client that made a call, if one did."""
    context = call.permitted.validated.request.context
    return None if context is None else context.client


def _plain(params: Any) -> Raw:
    plain: Raw = params.model_dump(by_alias=True, mode="json", exclude_none=True)
    return plain


def _task_error(error: Any) -> MCPError:
    """Return the error of a failed task as the server would have answered it to the call itself."""
    given: Mapping[str, Any] = error if is_object(error) else {}
    code, message = given.get("code"), given.get("message")
    return MCPError(
        code=code if isinstance(code, int) else INTERNAL_ERROR,
        message=message if isinstance(message, str) else "the task failed",
        data=given.get("data"),
    )


def ask_lost_call_outcome(call: AuthorizedCall, source: str) -> Question | None:
    """Build the question whether a held call whose session is gone had its effect; None when it may run again.

    A permission to run again counts once: it is bound to the number of answers known when it was given.
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


def _input_params(responses: Raw, state: str | None) -> Raw:
    return {
        **({"inputResponses": responses} if responses else {}),
        **({} if state is None else {"requestState": state}),
    }


def progress_callback(context: Callable[[], ToolContext]) -> OnProgress:
    """Return the callback that emits the progress of a call, up to a rate limit."""
    rate: RateLimit | None = None

    def report(progress: float, total: float | None, message: str | None) -> None:
        nonlocal rate
        rate = rate or RateLimit(per_second=_PROGRESS_PER_SECOND)
        if not rate.allows() and progress != total:
            return
        text = message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}")
        context().progress(text, fraction=None if not total else progress / total)

    return report


async def run_utility(
    session: McpSession, name: str, arguments: Mapping[str, Any], context: Callable[[], ToolContext]
) -> ToolOutput:
    """Run a utility tool by name."""
    match name:
        case "resources_list":
            resources = await session.list_all("resources/list", "resources")
            return ToolOutput({"resources": resources, "templates": await _list_templates(session)})
        case "resources_read":
            return await read_resource(session, str(arguments["uri"]), context)
        case "prompts_list":
            return ToolOutput({"prompts": await session.list_all("prompts/list", "prompts")})
        case _:
            params = {"name": arguments["name"], "arguments": dict(arguments.get("arguments") or {})}
            raw = await session.request("prompts/get", params)
            return ToolOutput({key: raw[key] for key in ("description", "messages") if key in raw})


async def _list_templates(session: McpSession) -> list[Any]:
    """List the resource templates; none when the server does not know the method."""
    try:
        return await session.list_all("resources/templates/list", "resourceTemplates")
    except ToolClientError:
        return []


async def read_resource(session: McpSession, uri: str, context: Callable[[], ToolContext]) -> ToolOutput:
    """Read a resource; files become artifacts."""
    raw = await session.request("resources/read", {"uri": uri})
    contents = cast("list[Any]", raw.get("contents") or [])
    return await parse_result({"content": [{"type": "resource", "resource": held} for held in contents]}, context)


async def parse_result(
    raw: dict[str, Any], context: Callable[[], ToolContext], limits: JsonLimits = _LIMITS
) -> ToolOutput:
    """Convert the result of a tools/call; raise ToolClientError when it reports an error."""
    output = await _parse_output(raw, context, limits)
    passed = passed_meta(raw["_meta"]) if "_meta" in raw else None
    return replace(output, meta={**output.meta, SERVER_META: passed}) if passed else output


async def _parse_output(raw: dict[str, Any], context: Callable[[], ToolContext], limits: JsonLimits) -> ToolOutput:
    blocks = _blocks(raw)
    if len(blocks) == 1 and blocks[0].get("type") == "text" and not raw.get("isError"):
        text = str(blocks[0].get("text", ""))  # the most common result
        structured = raw.get("structuredContent")
        if structured is not None:
            return ToolOutput(structured, text or None)
        return ToolOutput(await _parse_json_text(text, limits) if text[:1] in ("{", "[") else text, text)
    if raw.get("isError"):
        error = ToolClientError(f"MCP tool error: {_error_text(raw, blocks)}", code="tool_reported_error")
        error.server_meta = passed_meta(raw.get("_meta"))
        raise error
    return await _combine_parts(raw, blocks, context)


def _blocks(raw: dict[str, Any]) -> list[dict[str, Any]]:
    content = raw.get("content")
    if content is None and "structuredContent" in raw:
        return []
    if not is_array(content):
        raise ToolOutputError("the MCP server's answer has no list of content")
    if len(content) > _MAX_BLOCKS:
        raise too_large(f"it has {len(content):,} parts, and at most {_MAX_BLOCKS:,} are taken in")
    return [block for block in content if is_object(block)]


def _spell(structured: Any) -> str:
    """Write structured content as JSON; one that is JSON already is cut, because it is stored whole."""
    if isinstance(structured, CheckedJson):
        return structured[:_MAX_SPELLED].decode("utf-8", "replace")
    return json.dumps(structured, ensure_ascii=False)


def _error_text(raw: dict[str, Any], blocks: list[dict[str, Any]]) -> str:
    text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text").strip()
    structured = raw.get("structuredContent")
    if structured is not None and not text:
        text = _spell(structured)[:2000]
    return text or "the tool reported a failure without saying why"


async def _combine_parts(
    raw: dict[str, Any], blocks: list[dict[str, Any]], context: Callable[[], ToolContext]
) -> ToolOutput:
    structured = raw.get("structuredContent")
    if structured is None and len(blocks) == 1 and (file := _file(blocks[0])):
        return ToolOutput(file[0], media_type=file[1])
    parts = [await _part(block, context) for block in blocks]
    if structured is not None and not any(part.get("type") == "text" for part in parts):
        parts.insert(0, {"type": "text", "text": _spell(structured)})  # for the model
    text = "\n".join(_render_part(part, named=len(parts) > 1) for part in parts)
    if structured is not None:
        return ToolOutput(structured, text)
    if all(part.get("type") == "text" for part in parts):
        return ToolOutput(text, text)
    return ToolOutput(parts, text)


async def _part(block: dict[str, Any], context: Callable[[], ToolContext]) -> dict[str, Any]:
    """Convert a content block to plain data; a file's bytes are replaced by an artifact id."""
    file = _file(block)
    if file is None:
        inner = block.get("resource")
        return {"type": "resource", **inner} if is_object(inner) else block
    data, media_type, name = file
    artifact_id = await context().save_artifact(data, media_type=media_type, name=name)
    kept: dict[str, Any] = {"type": block["type"], "artifact_id": artifact_id, "media_type": media_type}
    return {**kept, "size": len(data), **({"uri": name} if name else {})}


def _file(block: dict[str, Any]) -> tuple[bytes, str, str] | None:
    """Return the bytes, media type and name of a block that contains a file."""
    kind, inner = block.get("type"), block.get("resource")
    if kind in ("image", "audio"):
        return _decode_base64(block.get("data")), str(block.get("mimeType", "application/octet-stream")), ""
    if kind == "resource" and is_object(inner) and "blob" in inner:
        media_type = str(inner.get("mimeType", "application/octet-stream"))
        return _decode_base64(inner["blob"]), media_type, str(inner.get("uri", ""))
    return None


def _decode_base64(data: Any) -> bytes:
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (AttributeError, binascii.Error, TypeError, ValueError) as error:
        raise ToolOutputError(f"the MCP server's answer holds a file that is not base64: {error}") from error


def _render_part(part: dict[str, Any], *, named: bool) -> str:
    """Render a part as text for the model; `named` puts the URI before a resource's text."""
    if "artifact_id" in part:
        return f"[{part['media_type']}, {part['size']} bytes, kept as {part['artifact_id']}]"
    if "text" in part:
        return f"{part['uri']}:\n{part['text']}" if named and part.get("uri") else str(part["text"])
    return json.dumps(part, ensure_ascii=False)


async def _parse_json_text(text: str, limits: JsonLimits) -> Any:
    """Parse a text that is a whole JSON object or array; return any other text unchanged.

    One of many values is checked in another process, and stays JSON.
    """
    if len(text) > SMALL:
        data = await check_large_json(text.encode("utf-8", "surrogatepass"), limits)
        if isinstance(data, CheckedJson):
            return data
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return text


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
