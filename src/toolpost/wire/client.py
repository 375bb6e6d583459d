"""The guarded HTTP client: every request, and every redirect of it, is judged before anything is connected to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolPermissionError, ToolTimeoutError
from toolpost.contracts.makers import maker
from toolpost.wire.bodies import ACCEPTED_ENCODINGS
from toolpost.wire.deadlines import Deadlines
from toolpost.wire.headers import check_method, clean_headers
from toolpost.wire.http import default_transport
from toolpost.wire.network import parse_target
from toolpost.wire.resolving import Pins, SharedLookups
from toolpost.wire.responses import Response
from toolpost.wire.steps import REDIRECTS, Step, next_step, request_path
from toolpost.wire.transports import Outgoing

if TYPE_CHECKING:
    from types import TracebackType

    from toolpost.wire.network import NetworkPolicy, Resolver
    from toolpost.wire.requests import Request
    from toolpost.wire.transports import HttpTransport, Incoming, Route

_new_step = maker(Step)
_new_outgoing = maker(Outgoing)
PAGE_TIMEOUT_S = 10.0
PAGE_BYTES = 5 * 1024 * 1024
MAX_REDIRECTS = 3

_CONNECT_S = 10.0
_CONNECT_SHARE = 0.8
_NEXT_ADDRESS_S = 2.0  # an address that swallows packets must not use up the time of the others
_PIN_S = 30.0
_DEFAULT_HEADERS = (("Accept", "*/*"), ("Accept-Encoding", ACCEPTED_ENCODINGS), ("User-Agent", "toolpost"))


class HttpClient:
    """Sends requests on behalf of one source, over connections that are kept and used again.

    Nothing is ever repeated: a failure says whether the request may have been sent, and the caller decides.
    The defaults are those for pages; an API has its own.
    """

    def __init__(
        self,
        policy: NetworkPolicy,
        *,
        transport: HttpTransport | None = None,
        timeout_s: float = PAGE_TIMEOUT_S,
        max_bytes: int = PAGE_BYTES,
        max_redirects: int = MAX_REDIRECTS,
        resolver: Resolver | None = None,
    ) -> None:
        self.policy = policy
        self.timeout_s = timeout_s
        self.max_bytes = max_bytes
        self.max_redirects = max_redirects
        self._owns_transport = transport is None
        self._transport = transport or default_transport(policy.proxy)
        self._lookups = SharedLookups(resolver)
        self._pins = Pins(policy, self._lookups, keep_s=_PIN_S)
        self._deadlines = Deadlines()
        self._closed = False

    async def send(self, request: Request) -> Response:
        """Send a request and wait for the head of its answer, whatever its status."""
        timeout_s = self.timeout_s if request.timeout_s is None else request.timeout_s
        step = self._first_step(request, timeout_s)
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            with self._deadlines.until(deadline):
                incoming = await self._send_step(step)
                if incoming.status in REDIRECTS:
                    step, incoming = await self._follow(step, incoming)
        except TimeoutError:
            message = f"{step.subject}: no answer within {timeout_s:g} s"
            raise ToolTimeoutError(message, timeout_ms=timeout_s * 1000) from None
        limit = self.max_bytes if request.max_bytes is None else request.max_bytes
        return Response(incoming, step, limit=limit, deadline=deadline, deadlines=self._deadlines)

    def for_document(self, url: str) -> HttpClient:
        """A client over the same connections for what a document from this URL points at."""
        return HttpClient(
            self.policy.for_document(url),
            transport=self._transport,
            timeout_s=self.timeout_s,
            max_bytes=self.max_bytes,
            max_redirects=self.max_redirects,
            resolver=self._lookups,
        )

    async def close(self) -> None:
        """Close every connection, unless the transport was given; later requests fail."""
        self._closed = True
        await self._lookups.close()
        if self._owns_transport:
            await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _first_step(self, request: Request, timeout_s: float) -> Step:
        headers = clean_headers(request.headers, defaults=_DEFAULT_HEADERS)
        follow = request.follow if self.max_redirects else "none"
        # Less than there is, so that no connection is told as what it is: nothing was sent.
        connect_s = min(_CONNECT_S, _CONNECT_SHARE * timeout_s)
        target = parse_target(request.url)
        method = check_method(request.method)
        return _new_step((method, request.url, target, headers, request.body, follow, connect_s))

    async def _follow(self, step: Step, incoming: Incoming) -> tuple[Step, Incoming]:
        try:
            for left in range(self.max_redirects, -1, -1):
                following = await self._redirect(step, incoming, left=left)
                if following is None:
                    break
                step, incoming = following, await self._send_step(following)
        except ToolConnectionError as failed:
            failed.sent = True  # if not this step, then the one before it
            raise
        return step, incoming

    async def _redirect(self, step: Step, incoming: Incoming, *, left: int) -> Step | None:
        """The step that the answer asks for, judged; the answer itself is then done with."""
        try:
            following = next_step(step, incoming.status, incoming.headers)
            if following is None:
                return None
            await incoming.close()
            if not left:
                message = f"{step.subject}: redirected more than {self.max_redirects} times"
                raise ToolClientError(message, code="too_many_redirects")
            await self._pins.find(following.target, timeout_s=step.connect_s)
        except ToolPermissionError as refused:
            await incoming.close()
            reason = str(refused).removeprefix("Permission denied: ")
            message = f"the redirect of {step.subject} is not followed: {reason}"
            raise ToolPermissionError(message, code=refused.error_code) from None
        return following

    async def _send_step(self, step: Step) -> Incoming:
        if self._closed:
            raise ToolConnectionError(f"{step.subject}: the client is closed", sent=False)
        routes = self._pins.known(step.target) or await self._pins.find(step.target, timeout_s=step.connect_s)
        return await self._send_along(routes, step, request_path(step.url))

    async def _send_along(self, routes: tuple[Route, ...], step: Step, path: str) -> Incoming:
        route, *others = routes
        connect_s = min(_NEXT_ADDRESS_S, step.connect_s) if others else step.connect_s
        try:
            outgoing = _new_outgoing((step.method, route, path, step.headers, step.body, connect_s))
            return await self._transport.send(outgoing)
        except ToolConnectionError as failed:
            if failed.sent or not others:
                self._pins.forget(step.target)
                raise
        self._pins.demote(step.target, route)
        return await self._send_along(tuple(others), step, path)
