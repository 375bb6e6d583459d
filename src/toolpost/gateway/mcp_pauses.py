"""Calls of MCP clients that wait for a person: ask the client's user, and collect what was decided.

Nothing that a client sends answers an approval. Its user can fill in what a tool wants to know, and is told of all
else; whoever may decide does so elsewhere. The state of a waiting call has the ids of its first and its last pending
action and the number of the round, with a MAC, so that a retry finds it in any process on the same store.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import INVALID_PARAMS, CallToolRequestParams, Result, server_request_adapter
from pydantic import ConfigDict, ValidationError

from toolpost.configuration.defaults import FILE_NAME
from toolpost.contracts.errors import PendingNotFoundError, ToolError
from toolpost.contracts.outcomes import OWN_META, Failed, OpenQuestion, Outcome, Paused
from toolpost.contracts.principal import LOCAL_TENANT, Principal, login_name
from toolpost.contracts.questions import PendingAction, Question, answering_user
from toolpost.gateway.mcp_client import client_capabilities
from toolpost.schema.json_values import is_object
from toolpost.sources.mcp import sdk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp.server.context import ServerRequestContext

    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.spec import ToolSpec
    from toolpost.toolbox.box import Toolbox

    Context = ServerRequestContext[Any, Any]
    OptionsOf = Callable[[Question], str]  # of a command that answers a question

_ELICIT = "elicitation/create"
_NEEDS = {"sampling/createMessage": "sampling", "roots/list": "roots"}
# Clients raise an error after ten rounds (SDKs of Python, TypeScript, C# and Go) and so end their agent's run.
_LAST_ROUND = 8
_STATUS, _WAIT = "pending_status", "pending_wait"
_LONGEST_WAIT_S = 120.0
_MOST_LISTED = 20
_MOST_SEEN = 200  # among which are those that the client's view shows
_AND = "&"
_MAC = "request state"
_PENDING_ID = {"pending_id": {"type": "string", "description": "The id that the waiting call's result named"}}
_EMPTY_FORM: dict[str, Any] = {"type": "object", "properties": {}}
PENDING_TOOLS: list[dict[str, Any]] = [
    {
        "name": _STATUS,
        "description": "Say what came of an earlier call of yours that waits for a person; without an id, list them.",
        "inputSchema": {"type": "object", "properties": _PENDING_ID},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": _WAIT,
        "description": "Wait until a person has decided about an earlier call of yours, and return its result.",
        "inputSchema": {
            "type": "object",
            "properties": {**_PENDING_ID, "timeout_s": {"type": "number", "minimum": 0, "maximum": _LONGEST_WAIT_S}},
            "required": ["pending_id"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
]


class Retry(NamedTuple):
    """A call that a client makes again, with the state that it was given and what it was asked for."""

    tool_name: str
    arguments: dict[str, Any]
    state: str
    responses: Mapping[str, Any]


class _State(NamedTuple):
    """The state of a waiting call that its client echoes: its first pause, the one it knows of, and its round."""

    first_id: str
    known_id: str
    round: int


class PausedCalls:
    """Ask about and collect the paused calls of an open Toolbox's MCP clients; of tools that they see.

    `interactive` says whether a person uses the client of a request.
    """

    def __init__(self, box: Toolbox, *, sees: Callable[[str], bool], interactive: Callable[[Context], bool]) -> None:
        self._box = box
        self._sees = sees
        self._interactive = interactive
        self._pending = box.pending

    @property
    def _wait_s(self) -> float:
        """How long a request waits for a person before it says what is missing."""
        return self._box.settings.server.pending_wait_s

    def is_for_client(self, question: Question, ctx: Context) -> bool:
        """Return whether the client of a request may answer: a form only where a person uses it.

        What a server asks of the client's model or about its folders is for no person.
        """
        if question.kind != "input":
            return False
        methods = [request.get("method") for request in question.requests.values()]
        if methods and _ELICIT not in methods:
            return True
        return not question.person and self._interactive(ctx)

    def client_requests(self, paused: Paused, ctx: Context, user: str) -> dict[str, Any]:
        """Return what the client is asked: by the server behind, if the client can answer it all, or about the pause.

        The key of the latter names the question: a retry that comes late answers no other.
        """
        question, is_asked = paused.question, self.is_for_client(paused.question, ctx)
        if is_asked and question.requests and _can_answer(question.requests, ctx):
            return dict(question.requests)
        request = _elicitation(paused, ctx, answer_options(self._box, user), is_asked=is_asked)
        return {} if request is None else {paused.pending_id: {"method": _ELICIT, "params": request}}

    # ------------------------------------------------------------------ newer clients, which retry

    async def collect(self, retry: Retry, ctx: Context, user: str, context: ToolContext) -> Outcome:
        """Return what came of a call that is retried; hand in what the client answered, if that is asked for.

        The arguments of the retry are those of the first pause: a person may have changed them since. A question that
        the client does not know of is returned at once.
        """
        state = self._read_state(retry.state, user)
        first = await self._own(state.first_id, user)
        if first is None or not self._is_same_call(await self._pending.outermost(first), retry):
            raise _invalid_state()
        if await self._own(state.known_id, user) is None:
            raise _invalid_state()
        now = await self._pending.outcome(first.id, by=user, wait_s=0)
        if not isinstance(now, Paused) or now.pending_id != state.known_id:
            return now
        if self.is_for_client(now.question, ctx):
            if now.pending_id in retry.responses:
                return await self._hand_in(now, _plain(retry.responses[now.pending_id]), user, context)
            if now.question.requests and retry.responses:
                return await self.answer(now, retry.responses, user, context)
        return await self._pending.outcome(now.pending_id, by=user, wait_s=self._wait_s)

    def input_required(self, paused: Paused, ctx: Context, user: str, *, state: str | None) -> dict[str, Any] | None:
        """Return the interim result of a call that waits; None in the last round, which ends with `pending_result`.

        `state` is that of the retry which still waits, if it is one.
        """
        last = None if state is None else self._read_state(state, user)
        if last is not None and last.round >= _LAST_ROUND:
            return None
        first_id, number = (paused.pending_id, 1) if last is None else (last.first_id, last.round + 1)
        echoed = self._write_state(_State(first_id, paused.pending_id, number), user)
        result: dict[str, Any] = {"resultType": "input_required", "requestState": echoed}
        requests = self.client_requests(paused, ctx, user)
        return {**result, "inputRequests": requests} if requests else result

    def _write_state(self, state: _State, user: str) -> str:
        plain = _AND.join(map(str, state))
        return f"{plain}{_AND}{self._state_mac(plain, user)}"

    def _read_state(self, text: str, user: str) -> _State:
        """Return a state that this gateway gave to this user; raise for any other."""
        plain, _, mac = text.rpartition(_AND)
        if not hmac.compare_digest(mac.encode(), self._state_mac(plain, user).encode()):
            raise _invalid_state()
        first_id, known_id, number = plain.split(_AND)
        return _State(first_id, known_id, int(number))

    def _state_mac(self, plain: str, user: str) -> str:
        message = json.dumps([user, plain]).encode()
        return self._box.store.mac(_MAC, message).hex()

    async def answer(self, paused: Paused, responses: Mapping[str, Any], user: str, context: ToolContext) -> Outcome:
        """Hand in a client's responses to what the server behind asks; what is missing is asked for again."""
        requests = paused.question.requests
        given = {key: _plain(responses[key]) for key in requests if key in responses}
        closed = any(given[key].get("action") == "cancel" for key in given if requests[key].get("method") == _ELICIT)
        if closed or len(given) < len(requests):
            return paused
        return await self._settle(
            paused, user, self._pending.answer(paused.pending_id, by=user, responses=given, context=context)
        )

    async def _own(self, pending_id: str, user: str) -> PendingAction | None:
        """Return the pending action of this user's own call; None for all others, which are not told apart."""
        try:
            action = await self._pending.get(pending_id, by=user)
        except (PendingNotFoundError, ValueError):
            return None
        return action if await self._is_own(action, user) else None

    async def _is_own(self, action: PendingAction, user: str) -> bool:
        """Return whether an action is of a call of this user's, or of one inside it, which the client need not see."""
        if str(action.asked_by) != user:
            return False
        return self._sees(action.tool_name) or self._sees((await self._pending.outermost(action)).tool_name)

    def _is_same_call(self, action: PendingAction, retry: Retry) -> bool:
        registry = self._box.registry
        canonical = registry.find(retry.tool_name).spec.name if registry.has(retry.tool_name) else retry.tool_name
        return action.tool_name == canonical and dict(action.arguments) == retry.arguments

    async def _hand_in(self, paused: Paused, response: dict[str, Any], user: str, context: ToolContext) -> Outcome:
        """Hand in a form that the client's user filled in, declined or closed."""
        pending, pending_id = self._pending, paused.pending_id
        match response.get("action"):
            case "accept":
                value: Any = response.get("content") or {}
                if not _has_form(paused.question):
                    value = value.get("value")  # a tool gets the same answer wherever it is given
                return await self._settle(paused, user, pending.answer(pending_id, value, by=user, context=context))
            case "decline":
                denial = pending.deny(pending_id, by=user, reason="declined in the client")
                return await self._settle(paused, user, denial)
            case _:
                return paused

    async def _settle(self, paused: Paused, user: str, answer: Awaitable[Outcome]) -> Outcome:
        """Return what comes of an answer; somebody else may have been faster."""
        pending, pending_id = self._pending, paused.pending_id
        try:
            return await answer
        except ToolError as error:
            if error.error_code == "already_answered":
                return await pending.outcome(pending_id, by=user, wait_s=self._wait_s)
            return Failed(paused.call_id, paused.run_id, paused.tool_name, error)

    # ------------------------------------------------------------------ older clients, which are asked

    async def ask(self, ctx: Context, paused: Paused, user: str, context: ToolContext) -> Outcome:
        """Ask an older client that can be asked, until nothing is asked any more or nobody answers."""
        while True:
            requests = self.client_requests(paused, ctx, user)
            if not requests or not ctx.session.can_send_request:
                return paused
            outcome = await self._ask_once(ctx, paused, requests, user, context)
            if not isinstance(outcome, Paused) or outcome.pending_id == paused.pending_id:
                return outcome
            paused = outcome

    async def _ask_once(
        self, ctx: Context, paused: Paused, requests: Mapping[str, Any], user: str, context: ToolContext
    ) -> Outcome:
        """Ask, and stop asking when it is decided elsewhere meanwhile or has expired."""
        loop = asyncio.get_running_loop()
        decided = loop.create_task(self._pending.outcome(paused.pending_id, by=user, wait_s=math.inf))
        asked = loop.create_task(_ask_client(ctx, requests))
        try:
            await asyncio.wait((decided, asked), return_when=asyncio.FIRST_COMPLETED)
            if decided.done():
                return decided.result()
        finally:
            for task in (decided, asked):
                task.cancel()
            await asyncio.gather(decided, asked, return_exceptions=True)
        return await self.take(paused, asked.result(), ctx, user, context)

    async def take(
        self, paused: Paused, replies: Mapping[str, Any], ctx: Context, user: str, context: ToolContext
    ) -> Outcome:
        """Go on with a client's replies to what `client_requests` returned for a pause."""
        is_asked = self.is_for_client(paused.question, ctx)
        if is_asked and paused.pending_id not in replies:
            return await self.answer(paused, replies, user, context)
        reply = _plain(replies.get(paused.pending_id))
        if is_asked:
            return await self._hand_in(paused, reply, user, context)
        wait_s = self._wait_s if reply.get("action") == "accept" else 0
        return await self._pending.outcome(paused.pending_id, by=user, wait_s=wait_s)

    async def decided(self, paused: Paused, user: str) -> Outcome:
        """Wait until somebody has decided, elsewhere."""
        return await self._pending.outcome(paused.pending_id, by=user, wait_s=math.inf)

    async def give_up(self, paused: Paused, ctx: Context, user: str) -> None:
        """Decline what a client was asked that does not want the result any more."""
        if self.is_for_client(paused.question, ctx):
            await self._settle(paused, user, self._pending.deny(paused.pending_id, by=user, reason="cancelled"))

    # ------------------------------------------------------------------ clients that can be asked nothing

    def is_own_tool(self, name: str) -> bool:
        """Return whether this is `pending_status` or `pending_wait`, and no tool of the catalog."""
        return name in (_STATUS, _WAIT) and not self._box.registry.has(name)

    async def call_own_tool(self, params: CallToolRequestParams, user: str) -> Outcome | dict[str, Any]:
        """Return what came of a pending call; `pending_wait` waits for a person for a while."""
        # Null is taken as absent, as in the arguments of any tool.
        given = {name: value for name, value in (params.arguments or {}).items() if value is not None}
        pending_id, wait_s = given.get("pending_id"), given.get("timeout_s", self._wait_s)
        if pending_id is None and params.name == _STATUS:
            return await self._list(user)
        if not isinstance(pending_id, str) or not isinstance(wait_s, int | float):
            return _text(f"{params.name} takes pending_id, a text, and timeout_s, a number", is_error=True)
        action = await self._own(pending_id, user)
        if action is None:
            return _text(f"none of your calls waits as {pending_id!r}; {_STATUS} lists them", is_error=True)
        wait = min(max(0.0, wait_s), _LONGEST_WAIT_S) if params.name == _WAIT else 0
        return await self._pending.outcome(pending_id, by=user, wait_s=wait)

    async def _list(self, user: str) -> dict[str, Any]:
        """Return the newest calls of this user that waited or still wait."""
        listed = await self._pending.list(by=user, status=None, user=Principal.parse(user).user, limit=_MOST_SEEN)
        found = [action for action in listed if await self._is_own(action, user)]
        lines = list[str]()
        for action in found[:_MOST_LISTED]:
            arguments = json.dumps(dict(action.question.arguments), ensure_ascii=False)
            lines.append(f"{action.id} {action.tool_name} {arguments}: {action.status}")
        return _text("\n".join(lines) or "none of your calls waits")


def _text(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """Return a result of one text; a mistake is a result too, which a model reads and mends."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _can_answer(requests: Mapping[str, Any], ctx: Context) -> bool:
    declared, modes = client_capabilities(ctx), _elicitation_modes(ctx)
    for request in requests.values():
        method, params = request.get("method"), request.get("params")
        mode = params.get("mode", "form") if is_object(params) else "form"
        if method == _ELICIT and mode not in modes:
            return False
        if method != _ELICIT and _NEEDS.get(method) not in declared:
            return False
    return True


def _invalid_state() -> MCPError:
    return MCPError(code=INVALID_PARAMS, message="Invalid or expired requestState: call the tool without it")


def pending_result(paused: Paused, spec: ToolSpec, card: Mapping[str, Any], options: OptionsOf) -> dict[str, Any]:
    """Return the result for clients that can be asked nothing: what waits, where it is answered, how to collect it.

    The card in `_meta` is for hosts that show it to their user. Some hand all of a result to their model, so the link
    by which a person signs in is not on it.

    Clients refuse a result without structured content where the tool has an output schema, unless it is an error.
    """
    text = (
        "This call waits for a person and runs once it is answered; do not repeat it. "
        f"{where_to_answer(paused, options)}\n"
        f"To get its result, call {_WAIT} with pending_id: {paused.pending_id}"
    )
    shown: Mapping[str, Any] = {**card, "payload": {}} if paused.question.kind == "consent" else card
    meta: dict[str, Any] = {
        f"{OWN_META}pending_id": paused.pending_id,
        f"{OWN_META}run_id": paused.run_id,
        f"{OWN_META}card": shown,
    }
    if others := paused.questions[1:]:
        meta[f"{OWN_META}others"] = [one.to_dict() for one in others]
    return {"content": [{"type": "text", "text": text}], "isError": spec.output_schema is not None, "_meta": meta}


def _elicitation(paused: Paused, ctx: Context, options: OptionsOf, *, is_asked: bool) -> dict[str, Any] | None:
    """Return what the client's user is asked: a form for input, a page to sign in, or news of an approval.

    An approval is only told of: whoever may decide does so elsewhere, and the client's user says when to look again.
    """
    question, offered = paused.question, _elicitation_modes(ctx)
    address = question.payload.get("auth_url")
    if question.kind == "consent" and isinstance(address, str) and "url" in offered:
        return {"mode": "url", "message": question.prompt, "url": address, "elicitationId": paused.pending_id}
    if "form" not in offered or question.kind == "restart":  # no person is asked for what goes on by itself
        return None
    if is_asked:
        return {"mode": "form", "message": question.prompt, "requestedSchema": _form(question)}
    return {"mode": "form", "message": where_to_answer(paused, options), "requestedSchema": _EMPTY_FORM}


def _form(question: Question) -> dict[str, Any]:
    """Return the form of a question; clients fill in nothing else, so that a plain answer is one field of one."""
    if question.answer_schema is not None and _has_form(question):
        return dict(question.answer_schema)
    return {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}


def _has_form(question: Question) -> bool:
    schema = question.answer_schema
    return schema is not None and schema.get("type") == "object"


def _elicitation_modes(ctx: Context) -> set[str]:
    capabilities = ctx.session.client_capabilities
    offered = None if capabilities is None else capabilities.elicitation
    if offered is None:
        return set()
    modes = {mode for mode in ("form", "url") if getattr(offered, mode, None) is not None}
    return modes or {"form"}  # an empty capability means forms, as before there were modes


class _Reply(Result):
    """Any reply of a client, as it is on the wire."""

    model_config = ConfigDict(extra="allow")


async def _ask_client(ctx: Context, requests: Mapping[str, Any]) -> dict[str, Any]:
    """Send requests to an older client and return its replies; one that refuses to ask has closed the form."""
    replies = await asyncio.gather(*(_send(ctx, request) for request in requests.values()))
    return dict(zip(requests, replies, strict=True))


async def _send(ctx: Context, request: dict[str, Any]) -> dict[str, Any]:
    outbound = sdk.REQUEST_OUTBOUND.of(ctx.session)
    try:
        if outbound is None:
            return await _send_typed(ctx, request)
        reply: dict[str, Any] = await outbound.send_raw_request(request["method"], request.get("params") or {})
    except (MCPError, ValidationError):
        return {"action": "cancel"}
    return reply


async def _send_typed(ctx: Context, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request by the public method of the SDK, which knows the requests of the protocol."""
    typed = server_request_adapter.validate_python(request)
    reply = await ctx.session.send_request(typed, _Reply, metadata=ServerMessageMetadata(ctx.request_id))
    return reply.model_dump(by_alias=True, mode="json", exclude_none=True)


def answer_options(box: Toolbox, user: str) -> OptionsOf:
    """Return the options by which the operator's command reaches a question that a call for `user` waits with."""
    asked_by, default = Principal.parse(user), str(Principal(LOCAL_TENANT, login_name()))

    def options(question: Question) -> str:
        path = box.config_path
        words = [] if path is None or path.absolute() == Path(FILE_NAME).absolute() else ["--config", str(path)]
        person = answering_user(question, asked_by)
        words += [] if person == default else ["--user", person]
        return "".join(f" {shlex.quote(word)}" for word in words)

    return options


def where_to_answer(paused: Paused, options: OptionsOf) -> str:
    """Return what people are asked, and the commands that answer it."""
    return "\nIt also waits for: ".join(_how_to_answer(asked, options(asked.question)) for asked in paused.questions)


def _how_to_answer(asked: OpenQuestion, options: str) -> str:
    question = asked.question
    target = question.target.get("summary", "")
    shown = f"{question.prompt}\narguments: {dict(question.arguments)}" + (f"\ntarget: {target}" if target else "")
    service = question.payload.get("provider", "SERVICE")
    step = question.next_step.format(id=asked.pending_id, service=service, options=options)
    return f"{shown}\n{step}"


def _plain(response: Any) -> dict[str, Any]:
    """Return a reply as it was on the wire; what is none is empty."""
    if is_object(response):
        return response
    dump: Any = getattr(response, "model_dump", None)
    return {} if dump is None else cast("dict[str, Any]", dump(by_alias=True, mode="json", exclude_none=True))
