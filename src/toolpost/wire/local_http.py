"""One HTTP request to a server on this machine, without proxies, for commands that need no client."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


async def post_local(url: str, *, headers: Mapping[str, str], timeout_s: float) -> tuple[int, Any]:
    """Send a POST without a body; return the status and the JSON value. OSError if no server answers."""
    return await asyncio.to_thread(_post, url, headers, timeout_s)


def _post(url: str, headers: Mapping[str, str], timeout_s: float) -> tuple[int, Any]:
    request = urllib.request.Request(url, method="POST", headers=dict(headers))  # noqa: S310 - the caller's own URL
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout_s) as reply:
            return reply.status, _parse(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _parse(error.read())


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
