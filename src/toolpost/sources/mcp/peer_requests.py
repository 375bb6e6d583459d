"""Requests and notifications of an MCP peer: their rate, and their way back to the peer."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import anyio
from mcp.shared.dispatcher import CallOptions, Outbound
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.transport_context import TransportContext
from mcp_types import RequestId

from toolpost.schema.json_values import is_object

Message: TypeAlias = dict[str, Any]

_WINDOW_S = 0.1
_BEGUN_PER_WINDOW = 100
_NOTED_PER_WINDOW = 100
_AT_ONCE = 16
_PAUSE_S = 20e-6  # per unsolicited message; dropping one takes a fifth of that
_BIDIRECTIONAL = TransportContext(kind="toolpost", can_send_request=True)
_ONE_WAY = TransportContext(kind="toolpost", can_send_request=False)


class PeerTurns:
    """The share of the event loop that a peer gets for unsolicited messages: its requests and notifications.

    Requests are started a few at a time, up to a rate, in their order of arrival. Notifications above a rate are
    dropped, except that of a changed list, which is handled once.
    """

    def __init__(self, start: Callable[[Message], None]) -> None:
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._window, self._begun, self._noted = 0.0, 0, 0
        self._changed = set[str]()
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self.waiting: OrderedDict[RequestId, Message] = OrderedDict()
        self.unsolicited = 0

    def put(self, request: Message) -> None:
        """Start a request of the peer in one of the next iterations of the event loop."""
        if self._timer is None and self._begun < _AT_ONCE:
            self._renew()
            self._begun += 1
            self._start(request)
            return
        self.waiting[id_key(request["id"])] = request
        if self._timer is None:
            self._timer = self._loop.call_soon(self._begin_some)

    def admits(self, method: str) -> bool:
        self._renew()
        self._noted += 1
        if self._noted <= _NOTED_PER_WINDOW:
            return True
        if not method.endswith("list_changed") or method in self._changed:
            return False
        self._changed.add(method)
        return True

    def due_pause(self) -> float:
        """Return the pause before the next read, 0 for a peer that sends few messages."""
        count, self.unsolicited = self.unsolicited, 0
        return count * _PAUSE_S if count > _AT_ONCE else 0.0

    def _renew(self) -> None:
        if self._loop.time() - self._window > _WINDOW_S:
            self._window, self._begun, self._noted = self._loop.time(), 0, 0
            self._changed.clear()

    def _begin_some(self) -> None:
        self._timer = None
        self._renew()
        for _ in range(min(_AT_ONCE, len(self.waiting), _BEGUN_PER_WINDOW - self._begun)):
            self._begun += 1
            self._start(self.waiting.popitem(last=False)[1])
        if not self.waiting:
            return
        if self._begun < _BEGUN_PER_WINDOW:
            self._timer = self._loop.call_soon(self._begin_some)
        else:
            self._timer = self._loop.call_later(_WINDOW_S, self._begin_some)


class PeerMessage:
    """A request or a notification of the peer, with the way back to it: a `DispatchContext` of the SDK."""

    __slots__ = (
        "_cancelled",
        "_rpc",
        "_token",
        "is_over",
        "may_request",
        "message_metadata",
        "request_id",
        "was_cancelled",
    )

    def __init__(self, rpc: Outbound, request_id: RequestId | None, token: RequestId | None) -> None:
        self._rpc = rpc
        self._token = token
        self._cancelled: anyio.Event | None = None
        self.request_id = request_id
        self.message_metadata = None
        self.is_over = False
        self.may_request = True
        self.was_cancelled = False

    @property
    def transport(self) -> TransportContext:
        return _BIDIRECTIONAL if self.may_request else _ONE_WAY

    @property
    def can_send_request(self) -> bool:
        """Whether a request can be sent to the peer while it waits for the response."""
        return self.may_request and not self.is_over

    @property
    def cancel_requested(self) -> anyio.Event:
        if self._cancelled is None:
            self._cancelled = anyio.Event()
        if self.was_cancelled:
            self._cancelled.set()
        return self._cancelled

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if not self.can_send_request:
            raise NoBackChannelError(method)
        return await self._rpc.send_raw_request(method, params, opts)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        if not self.is_over:
            await self._rpc.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress if the peer requested it."""
        if self._token is not None:
            params = {"progressToken": self._token, "progress": progress, "total": total, "message": message}
            known = {name: value for name, value in params.items() if value is not None}
            await self.notify("notifications/progress", known)


def id_key(request_id: Any) -> Any:
    """Return the key of an id; some peers write numbers as text."""
    if isinstance(request_id, str):
        try:
            return int(request_id)
        except ValueError:
            return request_id
    return request_id if isinstance(request_id, int | float) else None


def progress_token(message: Message) -> RequestId | None:
    """Return the token for which the peer requests progress, if any."""
    params: Message = message.get("params") or {}
    meta: Any = params.get("_meta")
    token = meta.get("progressToken") if is_object(meta) else None
    return token if isinstance(token, int | str) else None
