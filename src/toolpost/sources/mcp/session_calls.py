"""Calls in flight on one session of the older protocol; the server may hold them while it waits for input."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from toolpost.contracts.calls import AuthorizedCall, RequestedCall
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer
from toolpost.sources.mcp.elicitation import CANCELLED, HELD, build_responses, elicitation_answers
from toolpost.sources.mcp.jsonrpc import PendingRequest

if TYPE_CHECKING:
    from toolpost.contracts.context import CallingClient

_ABANDONED_S = 900.0  # how long a server may still elicit for a cancelled call


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
        """Forward log messages of the server to the client of a request while it runs."""
        listener = (principal, client)
        self._clients.append(listener)
        try:
            yield
        finally:
            self._clients.remove(listener)

    def listeners(self, busy: int) -> list[CallingClient]:
        """Return the clients that may receive a log; none if one of `busy` requests may belong to another user.

        Log messages do not name their request.
        """
        people = {principal for principal, _ in self._clients} | set(self._unheld)
        alone = len(people) == 1 and busy <= len(self._clients)
        return [client for _, client in self._clients] if alone else []

    def find_held(self, call_id: str) -> SessionCall | None:
        """Return the call if it waits for an answer."""
        in_flight = self._open.get(call_id)
        return in_flight if in_flight is not None and in_flight.held else None

    def find_requester(self) -> SessionCall | None:
        """Return the call that an elicitation belongs to; None if it might belong to another user.

        The older protocol does not name the call. Among calls of one user, the oldest is selected. With several users
        none is, because one user must not answer for another.
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
        for in_flight in list(self._open.values()):
            in_flight.cancel()


class SessionCall:
    """A call on a session of the older protocol, held while an elicitation of the server is open.

    Such a server keeps the request open until a user has answered. The request continues without the deadline of the
    caller.
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
        return self._pending.was_abandoned

    @property
    def done(self) -> bool:
        return self._pending.on_end is None

    def wait(self) -> Coroutine[Any, Any, dict[str, Any] | InputRequested]:
        """Wait for the result or the next elicitation. Cancelling the wait cancels the call."""
        return cast("Coroutine[Any, Any, dict[str, Any] | InputRequested]", self._session.wait(self._pending))

    def _note_end(self, pending: PendingRequest) -> None:
        if self._ended is not None:
            self._ended(pending)
        self._on_end(self)
        if pending.future.done() and not pending.future.cancelled():
            pending.future.exception()  # marks it as retrieved if no task waits

    async def request_input(self, request: dict[str, Any], *, hold_s: float) -> dict[str, Any]:
        """Raise a request of the server and wait for its response; repeat the earlier answer to an identical one."""
        if earlier := next((answer for answer in self._earlier_answers if answer.state[HELD] == request), None):
            self._earlier_answers.remove(earlier)
            return self._build_response(request, earlier)
        self._response = asyncio.get_running_loop().create_future()
        self._pending.interrupt(InputRequested(request))
        try:
            async with asyncio.timeout(hold_s):
                return await self._response
        except TimeoutError:
            return CANCELLED
        finally:
            self._response = None

    def resolve(self, request: dict[str, Any], answer: Answer) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_result(self._build_response(request, answer))

    @staticmethod
    def _build_response(request: dict[str, Any], answer: Answer) -> dict[str, Any]:
        return build_responses({HELD: request}, answer).get(HELD, CANCELLED)

    def cancel(self) -> None:
        self._session.abandon(self._pending)


class InputRequested(NamedTuple):
    """Event that interrupts the wait for a result: the server requests input first."""

    request: dict[str, Any]


class RequestSession(Protocol):
    """The session that a call runs on."""

    async def wait(self, pending: PendingRequest) -> object:
        """Wait for the result of a request, or for what interrupts it."""
        ...

    def abandon(self, pending: PendingRequest) -> None:
        """Stop waiting for a request, and let the server know."""
        ...
