"""Compression of JSON responses; streams, such as server-sent events, are never compressed."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from toolpost.wire.compression import accepts_gzip

if TYPE_CHECKING:
    from starlette.requests import Request

_LEAST_BYTES = 1024
_IN_THREAD_BYTES = 64 * 1024
_LEVEL = 5  # level 9 takes several times as long, and saves little on JSON
_TYPES = ("application/json", "application/problem+json")


async def compress(request: Request, response: Response) -> Response:
    """Return a JSON response of more than 1 KB compressed with gzip, if the client accepts that; others unchanged."""
    kind = response.headers.get("content-type", "").partition(";")[0]
    if kind not in _TYPES or isinstance(response, StreamingResponse) or len(response.body) <= _LEAST_BYTES:
        return response
    headers = dict(response.headers) | {"vary": "Accept-Encoding"}
    if etag := headers.get("etag"):  # the same content in two encodings has a weak ETag (RFC 9110, 8.8.3)
        headers["etag"] = f"W/{etag.removeprefix('W/')}"
    body = bytes(response.body)
    if accepts_gzip(request.headers.get("accept-encoding", "")):
        headers["content-encoding"] = "gzip"
        if len(body) > _IN_THREAD_BYTES:
            body = await asyncio.to_thread(gzip.compress, body, _LEVEL, mtime=0)
        else:
            body = gzip.compress(body, _LEVEL, mtime=0)
    del headers["content-length"]
    return Response(body, response.status_code, headers)
