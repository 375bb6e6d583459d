"""Runs flows through the guarded client."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode

from toolpost.auth.oauth.device import DeviceGrant, poll_device
from toolpost.auth.oauth.flow import Reply
from toolpost.contracts.errors import ToolError
from toolpost.wire.requests import Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.auth.oauth.flow import Ask, Clock, Flow
    from toolpost.auth.oauth.tokens import TokenSet
    from toolpost.wire.client import HttpClient

T = TypeVar("T")

ANSWER_BYTES = 1024 * 1024
ANSWER_TIMEOUT_S = 10.0


async def run_flow(flow: Flow[T], client: HttpClient) -> T:
    """Send what the flow asks, one request after another, and return its result."""
    try:
        ask = next(flow)
        while True:
            try:
                reply = await _send(ask, client)
            except ToolError as failed:
                ask = flow.throw(failed)
            else:
                ask = flow.send(reply)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        flow.close()


async def await_device(
    grant: DeviceGrant,
    client: HttpClient,
    *,
    clock: Clock = time.time,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> TokenSet:
    """Poll as often as the server allows, until the person has answered or the code is too old."""
    while True:
        await sleep(grant.interval)
        polled = await run_flow(poll_device(grant, clock=clock), client)
        if not isinstance(polled, DeviceGrant):
            return polled
        grant = polled


async def _send(ask: Ask, client: HttpClient) -> Reply:
    for document in ask.documents:
        client = client.for_document(document)
    async with await client.send(_request(ask)) as response:
        return Reply(response.status, response.headers, await response.read())


def _request(ask: Ask) -> Request:
    headers, body = ask.headers, None
    if ask.form is not None:
        headers, body = (*headers, ("Content-Type", "application/x-www-form-urlencoded")), urlencode(ask.form).encode()
    elif ask.json is not None:
        headers, body = (*headers, ("Content-Type", "application/json")), json.dumps(ask.json).encode()
    return Request(
        ask.method,
        ask.url,
        headers=headers,
        body=body,
        timeout_s=ANSWER_TIMEOUT_S,
        max_bytes=ANSWER_BYTES,
        follow="safe" if ask.method == "GET" else "none",
    )
