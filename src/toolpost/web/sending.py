"""The seam to the wire: a planned request goes out through the guarded client, an answer comes back whole.

A stream that does not end comes back as far as it came, because what was said by then is the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolTimeoutError
from toolpost.contracts.makers import maker
from toolpost.web.media_types import media_type
from toolpost.web.planned import READS
from toolpost.wire.requests import Request

if TYPE_CHECKING:
    from toolpost.contracts.errors import ToolNodeError
    from toolpost.web.planned import PlannedRequest
    from toolpost.wire.client import HttpClient
    from toolpost.wire.requests import Headers
    from toolpost.wire.responses import Response

Send: TypeAlias = Callable[["PlannedRequest"], Awaitable["Reply"]]
_new_request = maker(Request)
_SHARE_OF_TIME = 0.9  # what came is told before the call is given up
_ENDS = {"events": b"\n\n", "lines": b"\n"}


class Reply(NamedTuple):
    """An answer; `cut` says that a stream went on when its time or its room was up."""

    status: int
    headers: Headers
    body: bytes
    cut: bool = False


def sender(
    client: HttpClient, *, timeout_s: float | None = None, max_bytes: int | None = None, reads: bool = False
) -> Send:
    """What sends requests through a client; without limits of its own the client's hold.

    `reads` says that they change nothing, whatever their method.
    """

    async def send(planned: PlannedRequest) -> Reply:
        what = (planned.method, planned.wire_url, planned.wire_headers, planned.body)
        try:
            response = await client.send(_new_request((*what, timeout_s, max_bytes, "safe")))
            end = _ENDS.get(media_type(response.headers.get("content-type") or "").kind)
            if end is not None:
                return await _streamed(response, end)
            return Reply(response.status, response.headers, await response.read())
        except (ToolConnectionError, ToolTimeoutError, ToolClientError) as failed:
            if not reads and planned.method not in READS:
                _doubt(failed)
            raise

    return send


def _doubt(failed: ToolNodeError) -> None:
    """Say what nobody can know of a request that was sent and has no answer, or none that can be read."""
    if not isinstance(failed, ToolConnectionError) or failed.sent:
        failed.message = f"{failed.message}; it may have taken effect all the same"
        failed.args = (failed.message,)


async def _streamed(response: Response, end: bytes) -> Reply:
    body = bytearray()
    try:
        async for piece in response.stream(share_of_time=_SHARE_OF_TIME):
            body += piece
    except (ToolTimeoutError, ToolClientError):
        whole, found, _ = bytes(body).replace(b"\r\n", b"\n").rpartition(end)
        if not found:
            raise
        return Reply(response.status, response.headers, whole + end, cut=True)
    return Reply(response.status, response.headers, bytes(body))
