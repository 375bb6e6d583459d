"""One HTTP request to a server on this machine, without proxies, for commands that need no client."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

_MOST_BYTES = 1_000_000


async def get_local(url: str, *, timeout_s: float, bearer: str | None = None) -> tuple[int, Any]:
    """Send a GET; return the status and the JSON value. OSError if no server answers."""
    return await asyncio.to_thread(_get, url, timeout_s, bearer)


def _get(url: str, timeout_s: float, bearer: str | None) -> tuple[int, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())
    request = urllib.request.Request(url)  # noqa: S310 - the address of a caller on this machine
    if bearer is not None:
        request.add_header("Authorization", f"Bearer {bearer}")
    try:
        with opener.open(request, timeout=timeout_s) as reply:
            return reply.status, _parse(reply.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _parse(error.read(_MOST_BYTES))
    except HTTPException as error:
        raise OSError(f"the answer is not HTTP: {error}") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: urllib would send the bearer to the other server."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        return None


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
