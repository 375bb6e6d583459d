"""Elicitation: convert a server's requests for input to questions, and answers to responses; hold calls meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast
from urllib.parse import urlsplit

from toolpost.contracts.calls import AuthorizedCall, RequestedCall
from toolpost.contracts.context import CallingClient
from toolpost.contracts.errors import ToolClientError, ToolSchemaError
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, Question
from toolpost.schema.json_values import is_object
from toolpost.schema.schema_checks import check_schema
from toolpost.schema.validator import compile_validator

if TYPE_CHECKING:
    from toolpost.sources.mcp.jsonrpc import PendingRequest

ELICIT = "elicitation/create"
_KEY = "mcp:"
_URL_ELICITATION_REQUIRED = -32042
_SHOWN_FIELDS = ("mode", "message", "requestedSchema", "url", "elicitationId")
HELD = "request"  # names the request that the server of a held call waits with
CANCELLED: dict[str, Any] = {"action": "cancel"}
_ABANDONED_S = 900.0  # how long a server may still elicit for a cancelled call


class InputRequired(NamedTuple):
    """An `input_required` result: requests for a person, requests for this client, and the server's opaque state."""

    elicitations: dict[str, dict[str, Any]]
    client_requests: dict[str, dict[str, Any]]
    state: str | None


def parse_input_required(raw: Mapping[str, Any]) -> InputRequired:
    """Parse an `input_required` result."""
    needed = InputRequired({}, {}, raw.get("requestState"))
    requests: Any = raw.get("inputRequests") or {}
    if not is_object(requests):
        raise ToolClientError("MCP tool error: the server needs input but does not say which")
    for key, request in requests.items():
        if not is_object(request):
            raise ToolClientError(f"MCP tool error: the server needs input, but its request {key!r} is not one")
        side = needed.elicitations if request.get("method") == ELICIT else needed.client_requests
        side[key] = request
    return needed


def parse_url_elicitations(cause: BaseException | None) -> dict[str, dict[str, Any]]:
    """Return the pages that a person must visit first, from error -32042; none for other errors."""
    error: Any = getattr(cause, "error", None)
    data: Any = getattr(error, "data", None)
    if getattr(error, "code", None) != _URL_ELICITATION_REQUIRED or not is_object(data):
        return {}
    pages = [page for page in data.get("elicitations") or () if is_object(page)]
    return {str(number): {"method": ELICIT, "params": {"mode": "url", **page}} for number, page in enumerate(pages)}


def build_question(
    source: str,
    elicitations: Mapping[str, Mapping[str, Any]],
    state: Mapping[str, Any],
    *,
    number: int,
    deliver_denial: bool = True,
    held: bool = False,
    requests: Mapping[str, Mapping[str, Any]] | None = None,
) -> Question:
    """Build the question for a server's elicitations.

    `state` comes back with the answer. `held` marks a question that only the process holding the call can answer.
    `requests` are all that the client of the call may answer: the elicitations, and what is for its model or its
    folders.
    """
    forms = _forms(elicitations)
    for form in forms.values():
        _check_url(form, source)
    asked = {str(request.get("method")) for key, request in (requests or {}).items() if key not in elicitations}
    messages = [str(form.get("message", "")) for form in forms.values()]
    prompt = "\n".join([*messages, *(f"its client for {method}" for method in sorted(asked))])
    shown = {key: {name: form[name] for name in _SHOWN_FIELDS if name in form} for key, form in forms.items()}
    return Question(
        kind="input",
        prompt=f"{source} asks: {prompt}",
        reason="input_required",
        payload={"source": source, "requests": shown} | ({"held": True} if held else {}),
        key=f"{_KEY}{number}",
        answer_schema=_check_form(_answer_schema(forms), source),
        state=dict(state),
        deliver_denial=deliver_denial,
        requests=dict(elicitations if requests is None else requests),
    )


def _forms(elicitations: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {key: cast("dict[str, Any]", request.get("params") or {}) for key, request in elicitations.items()}


def _check_url(form: Mapping[str, Any], source: str) -> None:
    """Reject a URL that is not a web page, such as a script that a browser would run."""
    if form.get("mode") == "url" and urlsplit(str(form.get("url", ""))).scheme not in ("http", "https"):
        raise ToolClientError(f"MCP tool error: {source!r} asks a person to open something that is not a web page")


def _check_form(schema: dict[str, Any] | None, source: str) -> dict[str, Any] | None:
    """Reject a form whose schema cannot be used, because no answer could match it."""
    if schema is not None:
        try:
            check_schema(schema, tool_name=source)
            compile_validator(schema)
        except ToolSchemaError as error:
            msg = f"MCP tool error: {source!r} asks with a form that cannot be used: {error}"
            raise ToolClientError(msg) from error
    return schema


def _answer_schema(forms: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Build the schema of the answer: the only form's content, or the content of each form by its key."""
    schemas = {key: _relax_defaults(form) for key, form in forms.items() if form.get("mode") != "url"}
    if not schemas:
        return None
    if len(forms) == 1:
        return next(iter(schemas.values()))
    return {"type": "object", "properties": schemas, "required": list(schemas)}


def _relax_defaults(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form's schema with fields that have a default made optional."""
    schema = cast("dict[str, Any]", form.get("requestedSchema") or {"type": "object"})
    defaults = _defaults(form)
    return {**schema, "required": [name for name in schema.get("required", []) if name not in defaults]}


def _defaults(form: Mapping[str, Any]) -> dict[str, Any]:
    schema = cast("dict[str, Any]", form.get("requestedSchema") or {})
    fields = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
    return {name: field["default"] for name, field in fields.items() if "default" in field}


def build_responses(elicitations: Mapping[str, Mapping[str, Any]], answer: Answer) -> dict[str, dict[str, Any]]:
    """Convert an answer to the response for each of the server's requests; a client's own responses are passed on."""
    if answer.responses is not None:
        return {key: answer.responses[key] for key in elicitations if key in answer.responses}
    forms = _forms(elicitations)
    return {key: _build_response(form, answer, key if len(forms) > 1 else None) for key, form in forms.items()}


def _build_response(form: Mapping[str, Any], answer: Answer, key: str | None) -> dict[str, Any]:
    if answer.decision == "deny":
        return {"action": "decline"}
    if form.get("mode") == "url":
        return {"action": "accept"}
    given: dict[str, Any] = answer.value or {}
    value: dict[str, Any] = given if key is None else given.get(key) or {}
    return {"action": "accept", "content": {**_defaults(form), **value}}


def next_question_number(answers: Mapping[str, Answer]) -> int:
    """Return an unused number for the next question of a call."""
    return 1 + max(_question_numbers(answers), default=0)


def elicitation_answers(answers: Mapping[str, Answer]) -> list[Answer]:
    """Return the answers to a server's questions in one call, in order."""
    return [answers[f"{_KEY}{number}"] for number in sorted(_question_numbers(answers))]


def _question_numbers(answers: Mapping[str, Answer]) -> list[int]:
    return [int(key.removeprefix(_KEY)) for key in answers if key.startswith(_KEY)]


class Asked(NamedTuple):
    """Interrupts the wait for a result: the server asks for something first."""

    request: dict[str, Any]


class RequestSession(Protocol):
    """The session that a call runs on."""

    async def wait(self, pending: PendingRequest) -> object:
        """Wait for the result of a request, or for what interrupts it."""
        ...

    def abandon(self, pending: PendingRequest) -> None:
        """Stop waiting for a request, and let the server know."""
        ...


class SessionCall:
    """A call on a session of the older protocol, held while an elicitation of the server is open.

    Such a server keeps the request open until a person has answered; the request goes on meanwhile, outside the
    deadline of the caller.
    """

    __slots__ = ("_earlier_answers", "_ended", "_on_end", "_pending", "_response", "_session", "client", "request")

    def __init__(
        self,
        call: AuthorizedCall,
        session: RequestSession,
        pending: PendingRequest,
        *,
        on_end: Callable[[SessionCall], None],
    ) -> None:
        request: RequestedCall = call.permitted.validated.request
        self.request = request
        self.client = None if request.context is None else request.context.client
        self._earlier_answers = (
            [answer for answer in elicitation_answers(request.answers) if HELD in answer.state]
            if request.answers
            else []
        )
        self._session = session
        self._pending = pending
        self._ended = pending.on_end
        self._on_end = on_end
        self._response: asyncio.Future[dict[str, Any]] | None = None
        pending.on_end = self._note_end

    @property
    def held(self) -> bool:
        """Whether an elicitation is open."""
        return self._response is not None

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled on this side."""
        return self._pending.was_abandoned

    @property
    def done(self) -> bool:
        """Whether the call has ended."""
        return self._pending.on_end is None

    def wait(self) -> Coroutine[Any, Any, dict[str, Any] | Asked]:
        """Wait for the result or the next elicitation. Cancelling the wait cancels the call."""
        return cast("Coroutine[Any, Any, dict[str, Any] | Asked]", self._session.wait(self._pending))

    def _note_end(self, pending: PendingRequest) -> None:
        if self._ended is not None:
            self._ended(pending)
        self._on_end(self)
        if pending.future.done() and not pending.future.cancelled():
            pending.future.exception()  # marks it as retrieved when nobody waits for the result

    async def ask(self, request: dict[str, Any], *, hold_s: float) -> dict[str, Any]:
        """Raise a request of the server and wait for its response; repeat the earlier answer to an identical one."""
        if earlier := next((answer for answer in self._earlier_answers if answer.state[HELD] == request), None):
            self._earlier_answers.remove(earlier)
            return self._build_response(request, earlier)
        self._response = asyncio.get_running_loop().create_future()
        self._pending.interrupt(Asked(request))
        try:
            async with asyncio.timeout(hold_s):
                return await self._response
        except TimeoutError:
            return CANCELLED
        finally:
            self._response = None

    def resolve(self, request: dict[str, Any], answer: Answer) -> None:
        """Answer the open request."""
        if self._response is not None and not self._response.done():
            self._response.set_result(self._build_response(request, answer))

    @staticmethod
    def _build_response(request: dict[str, Any], answer: Answer) -> dict[str, Any]:
        return build_responses({HELD: request}, answer).get(HELD, CANCELLED)

    def cancel(self) -> None:
        """Cancel the call and notify the server."""
        self._session.abandon(self._pending)


class SessionCalls:
    """The calls in flight on one session, with their principals."""

    def __init__(self) -> None:
        self._clients: list[tuple[Principal, CallingClient]] = []
        self._open: dict[str, SessionCall] = {}
        self._unheld: Counter[Principal] = Counter()
        self._abandoned: list[tuple[float, Principal]] = []

    def __bool__(self) -> bool:
        return bool(self._open or self._unheld)

    def begin(self, call: AuthorizedCall, session: RequestSession, pending: PendingRequest) -> SessionCall:
        """Track a call whose request was sent."""
        in_flight = SessionCall(call, session, pending, on_end=self._remove)
        self._open[in_flight.request.call_id] = in_flight
        return in_flight

    def _remove(self, in_flight: SessionCall) -> None:
        """Remove an ended call; a cancelled one may still run in the server and elicit."""
        if self._open.get(in_flight.request.call_id) is in_flight:
            del self._open[in_flight.request.call_id]
        if in_flight.cancelled:
            self._abandoned.append((time.monotonic() + _ABANDONED_S, in_flight.request.principal))

    @contextmanager
    def track(self, principal: Principal) -> Generator[None]:
        """Count a request that cannot be held while it runs."""
        self._unheld[principal] += 1
        try:
            yield
        except asyncio.CancelledError:
            self._abandoned.append((time.monotonic() + _ABANDONED_S, principal))
            raise
        finally:
            self._unheld[principal] -= 1
            self._unheld += Counter()  # drops entries at zero

    @contextmanager
    def heard_by(self, principal: Principal, client: CallingClient) -> Generator[None]:
        """Let the client of a request hear what the server logs meanwhile."""
        listener = (principal, client)
        self._clients.append(listener)
        try:
            yield
        finally:
            self._clients.remove(listener)

    def listeners(self, busy: int) -> list[CallingClient]:
        """Return the clients that may hear a log; none when one of `busy` requests may be another person's.

        Servers do not say to which request a log belongs.
        """
        people = {principal for principal, _ in self._clients} | set(self._unheld)
        alone = len(people) == 1 and busy <= len(self._clients)
        return [client for _, client in self._clients] if alone else []

    def find_held(self, call_id: str) -> SessionCall | None:
        """Return the call if it waits for an answer."""
        in_flight = self._open.get(call_id)
        return in_flight if in_flight is not None and in_flight.held else None

    def find_asker(self) -> SessionCall | None:
        """Return the call that an elicitation belongs to; None when it might be another person's.

        The older protocol does not name the call. Among calls of one person the oldest is taken; with several people
        none is, so that nobody answers for somebody else.
        """
        free = [in_flight for in_flight in self._open.values() if not (in_flight.held or in_flight.done)]
        self._abandoned = [one for one in self._abandoned if one[0] > time.monotonic()]
        people = {in_flight.request.principal for in_flight in free}
        people.update(self._unheld, (principal for _, principal in self._abandoned))
        return free[0] if free and len(people) == 1 else None

    def release(self, call_id: str) -> None:
        """Cancel a call that will get no answer."""
        if (in_flight := self._open.get(call_id)) is not None:
            in_flight.cancel()

    def cancel_all(self) -> None:
        """Cancel every call."""
        for in_flight in list(self._open.values()):
            in_flight.cancel()
