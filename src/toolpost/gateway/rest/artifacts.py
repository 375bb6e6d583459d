"""Operations on artifacts: list them, read them or ranges of them, and upload files for calls."""

from __future__ import annotations

import mimetypes
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from toolpost.contracts.storage import ArtifactRef
from toolpost.gateway.problems import Problem, ProblemResponse
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest, read_body
from toolpost.gateway.rest.pages import PAGE, decode_cursor, invalid_cursor, page_response
from toolpost.gateway.rest.schema_builders import page, ref

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from toolpost.contracts.storage import ArtifactStore

OPERATIONS = Operations("artifacts")
_PIECE = 1 << 20
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")
_PARAMETERS = re.compile(r"[\t -~]{0,200}")
_OCTETS = "application/octet-stream"
_CURL_DEFAULT = "application/x-www-form-urlencoded"  # sent by curl if no type is given
_NAME = {"type": "string", "maxLength": 200}


@OPERATIONS.declare("GET", "/artifacts", query={"run": _NAME, **PAGE}, answers={200: page("Artifact")})
async def list_artifacts(request: RestRequest) -> Response:
    """List large and binary results, newest first."""
    limit: int = request.query["limit"]
    before, store = decode_cursor(request.query.get("cursor")), request.box.store.artifacts
    if before is not None and await store.info(before, tenant=request.tenant, user=request.only_user) is None:
        raise invalid_cursor()
    found = await store.list(
        tenant=request.tenant, user=request.only_user, run_id=request.query.get("run"), before=before, limit=limit + 1
    )
    return page_response(found, limit, lambda one: one.id, lambda one: one.to_dict())


@OPERATIONS.declare("GET", "/artifacts/{artifact_id}", answers={200: ref("Artifact")}, problems=(404,))
async def show_artifact(request: RestRequest) -> Response:
    """Show the metadata of an artifact."""
    return JsonResponse((await find_artifact(request)).to_dict())


@OPERATIONS.declare(
    "GET",
    "/artifacts/{artifact_id}/content",
    headers={"Range": {"type": "string"}, "If-None-Match": {"type": "string"}},
    answers={200: {"*/*": {"type": "string", "format": "binary"}}, 206: {"*/*": {"type": "string"}}, 304: None},
    problems=(404, 416),
)
async def read_artifact(request: RestRequest) -> Response:
    """Read an artifact, or a range of its bytes.

    Browsers download artifacts instead of showing them.
    """
    return await content_response(request, await find_artifact(request))


async def content_response(request: RestRequest, found: ArtifactRef) -> Response:
    """Return the content of an artifact, or the range of it that a request wants.

    The first piece is read before the status is sent, so a content that cannot be read is an error and not a download.
    """
    etag = f'"{found.sha256}"'
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Content-Disposition": "attachment",
        "Cache-Control": "private, no-cache",
        "Content-Type": _content_type(found.media_type),
    }
    known = [one.strip().removeprefix("W/") for one in request.raw.headers.get("if-none-match", "").split(",")]
    if etag in known or "*" in known:
        return Response(status_code=304, headers={"ETag": etag})
    begin, end, status = 0, found.size, 200
    wanted = request.raw.headers.get("range")
    if wanted is not None and request.raw.headers.get("if-range", etag) == etag:
        part = _range(wanted, found.size)
        if part is not None:
            begin, end = part
            if begin >= end:
                none = {"Content-Range": f"bytes */{found.size}"}
                return ProblemResponse(416, "range", "the artifact has no such range", headers=none)
            status = 206
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{found.size}"
    headers["Content-Length"] = str(end - begin)
    pieces = _pieces(request.box.store.artifacts, found, begin, end)
    first = await anext(pieces, b"")
    return StreamingResponse(_rejoined(first, pieces), status, headers=headers)


def _content_type(media_type: str) -> str:
    """Return the media type declared by a tool or a server if it is valid in a header."""
    kind, _, parameters = media_type.partition(";")
    return media_type if _MEDIA_TYPE.fullmatch(kind) and _PARAMETERS.fullmatch(parameters) else _OCTETS


def _range(text: str, size: int) -> tuple[int, int] | None:
    """Return start and end of the range in a Range header; None if the header is to be ignored."""
    found = _RANGE.fullmatch(text.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return max(0, size - int(found[2])), size
    return int(found[1]), min(size, int(found[2]) + 1) if found[2] else size


async def _pieces(store: ArtifactStore, found: ArtifactRef, begin: int, end: int) -> AsyncGenerator[bytes]:
    while begin < end:
        piece = await store.read(found.id, tenant=found.tenant, offset=begin, limit=min(_PIECE, end - begin))
        if not piece:
            return
        begin += len(piece)
        yield piece


async def _rejoined(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    yield first
    async for piece in rest:
        yield piece


@OPERATIONS.declare(
    "POST",
    "/artifacts",
    scope=("call",),
    query={"name": _NAME},
    raw_body=True,
    answers={201: ref("Artifact")},
    problems=(503,),
)
async def upload_artifact(request: RestRequest) -> Response:
    """Upload a file as an argument for calls.

    A call refers to it as `{"artifact_id": ...}`.
    """
    name = request.query.get("name", "")
    kind = _kind_of(request.raw.headers.get("content-type", ""), name)
    most = round(request.box.settings.server.max_upload_mb * 1024 * 1024)
    with _room_for_upload(request, most):
        data = await read_body(request.raw, most)
        if not data:
            raise Problem(422, "empty_file", "the body must be the file, but it is empty")
        stored = await request.box.store.artifacts.put(
            data,
            ArtifactRef(
                id="",
                sha256="",
                size=0,
                media_type=kind,
                name=name,
                tenant=request.tenant,
                user=request.caller.principal.user,
                run_id=request.box.router.new_id("run"),
                call_id="",
                tool_name="",
                created_at=time.time(),
            ),
        )
    location = f"{request.service.public_url}/api/v1/artifacts/{stored.id}"
    return JsonResponse(stored.to_dict(), 201, headers={"Location": location})


def _kind_of(header: str, name: str) -> str:
    """Return the media type of an upload; if the header has none, guess it from the file name."""
    kind = header.partition(";")[0].strip()
    if kind.lower() == "multipart/form-data":
        example = "`curl --data-binary @FILE -H 'Content-Type: TYPE' ...?name=FILE`"
        raise Problem(415, "unsupported_media_type", f"the body must be the file itself, not a form: {example}")
    if not kind or kind.lower() == _CURL_DEFAULT:
        return mimetypes.guess_type(name)[0] or _OCTETS
    if not _MEDIA_TYPE.fullmatch(kind):
        raise Problem(415, "unsupported_media_type", f"{kind!r} is not a valid content type")
    return kind


@contextmanager
def _room_for_upload(request: RestRequest, most: int) -> Generator[None]:
    """Reserve memory for a file until it is stored; concurrent uploads of a caller share twice `most` bytes."""
    length, uploads, caller = request.raw.headers.get("content-length", ""), request.service.uploads, request.caller.id
    size = min(most, int(length)) if length.isdigit() else most
    if uploads[caller] + size > 2 * most:
        detail = "this caller uploads too many bytes concurrently; wait until one of its uploads is stored"
        raise Problem(429, "too_many_uploads", detail, headers={"Retry-After": "2"})
    uploads[caller] += size
    try:
        yield
    finally:
        uploads[caller] -= size
        if not uploads[caller]:
            del uploads[caller]


async def find_artifact(request: RestRequest) -> ArtifactRef:
    """Return an artifact that is visible to the caller; others are not found."""
    artifact_id = request.path["artifact_id"]
    found = await request.box.store.artifacts.info(artifact_id, tenant=request.tenant, user=request.only_user)
    if found is None:
        raise Problem(404, "artifact_not_found", f"unknown artifact {artifact_id!r}")
    return found
