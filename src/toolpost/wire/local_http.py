"""One HTTP request to a server on this machine, without proxies, for commands that need no client."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

_MOST_BYTES = 1_000_000


async def get_local(url: str, *, timeout_s: float) -> tuple[int, Any]:
    """Send a GET; return the status and the JSON value. OSError if no server answers."""
    return await asyncio.to_thread(_get, url, timeout_s)


def _get(url: str, timeout_s: float) -> tuple[int, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_s) as reply:
            return reply.status, _parse(reply.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _parse(error.read(_MOST_BYTES))
    except HTTPException as error:
        raise OSError(f"the answer is not HTTP: {error}") from None


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
