"""Operations on artifacts: list them, read them in parts, and upload files for calls."""

from __future__ import annotations

import mimetypes
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from toolpost.contracts.storage import ArtifactRef
from toolpost.gateway.problems import Problem, ProblemResponse
from toolpost.gateway.rest.operations import (
    CURSOR,
    LIMIT,
    JsonResponse,
    Operation,
    RestRequest,
    decode_cursor,
    invalid_cursor,
    page_response,
    read_body,
)
from toolpost.gateway.rest.schemas import page, ref

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

_PIECE = 1 << 20
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")
_PARAMETERS = re.compile(r"[\t -~]{0,200}")
_OCTETS = "application/octet-stream"
_UNSAID = "application/x-www-form-urlencoded"  # what curl says of every body whose type it is not told
_FILE = {_OCTETS: {"type": "string", "format": "binary"}}


async def _list_artifacts(ask: RestRequest) -> Response:
    limit: int = ask.query["limit"]
    before, store = decode_cursor(ask.query.get("cursor")), ask.box.store.artifacts
    if before is not None and await store.info(before, tenant=ask.tenant, user=ask.only_user) is None:
        raise invalid_cursor()
    found = await store.list(
        tenant=ask.tenant, user=ask.only_user, run_id=ask.query.get("run"), before=before, limit=limit + 1
    )
    return page_response(found, limit, lambda one: one.id, lambda one: one.to_dict())


async def _show_artifact(ask: RestRequest) -> Response:
    return JsonResponse((await _find(ask)).to_dict())


async def _read_artifact(ask: RestRequest) -> Response:
    """Send the bytes of an artifact, or the range of them that is asked for; they are never shown as a page."""
    found = await _find(ask)
    etag = f'"{found.sha256}"'
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Content-Disposition": "attachment",
        "Cache-Control": "private, no-cache",
        "Content-Type": _content_type(found.media_type),
    }
    known = [one.strip().removeprefix("W/") for one in ask.raw.headers.get("if-none-match", "").split(",")]
    if etag in known or "*" in known:
        return Response(status_code=304, headers={"ETag": etag})
    begin, end, status = 0, found.size, 200
    wanted = ask.raw.headers.get("range")
    if wanted is not None and ask.raw.headers.get("if-range", etag) == etag:
        part = _range(wanted, found.size)
        if part is not None:
            begin, end = part
            if begin >= end:
                none = {"Content-Range": f"bytes */{found.size}"}
                return ProblemResponse(416, "range", "there is no such part of it", headers=none)
            status = 206
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{found.size}"
    headers["Content-Length"] = str(end - begin)
    return StreamingResponse(_pieces(ask, found.id, begin, end), status, headers=headers)


def _content_type(media_type: str) -> str:
    """Return the media type that a tool or a server claimed, if it can stand in a header."""
    kind, _, parameters = media_type.partition(";")
    return media_type if _MEDIA_TYPE.fullmatch(kind) and _PARAMETERS.fullmatch(parameters) else _OCTETS


def _range(text: str, size: int) -> tuple[int, int] | None:
    """Return where the part that a Range header names begins and ends; None where the header is to be ignored."""
    found = _RANGE.fullmatch(text.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return max(0, size - int(found[2])), size
    return int(found[1]), min(size, int(found[2]) + 1) if found[2] else size


async def _pieces(ask: RestRequest, artifact_id: str, begin: int, end: int) -> AsyncGenerator[bytes]:
    store = ask.box.store.artifacts
    while begin < end:
        piece = await store.read(artifact_id, tenant=ask.tenant, offset=begin, limit=min(_PIECE, end - begin))
        if not piece:
            return
        begin += len(piece)
        yield piece


async def _upload_artifact(ask: RestRequest) -> Response:
    """Store a file, so that a call can name it as an argument: `{"artifact_id": ...}`."""
    name = ask.query.get("name", "")
    kind = _kind_of(ask.raw.headers.get("content-type", ""), name)
    most = round(ask.box.settings.server.max_upload_mb * 1024 * 1024)
    with _room_for_upload(ask, most):
        data = await read_body(ask.raw, most)
        if not data:
            raise Problem(422, "empty_file", "the body is the file, and it is empty")
        stored = await ask.box.store.artifacts.put(
            data,
            ArtifactRef(
                id="",
                sha256="",
                size=0,
                media_type=kind,
                name=name,
                tenant=ask.tenant,
                user=ask.caller.principal.user,
                run_id=ask.box.router.new_id("run"),
                call_id="",
                tool_name="",
                created_at=time.time(),
            ),
        )
    location = f"{ask.service.public_url}/api/v1/artifacts/{stored.id}"
    return JsonResponse(stored.to_dict(), 201, headers={"Location": location})


def _kind_of(header: str, name: str) -> str:
    """Return the media type of an upload; where none is said, what the file's name ends with says it."""
    kind = header.partition(";")[0].strip()
    if kind.lower() == "multipart/form-data":
        told = (
            "the body is the file itself, not a form: `curl --data-binary @FILE -H 'Content-Type: TYPE' ...?name=FILE`"
        )
        raise Problem(415, "unsupported_media_type", told)
    if not kind or kind.lower() == _UNSAID:
        return mimetypes.guess_type(name)[0] or _OCTETS
    if not _MEDIA_TYPE.fullmatch(kind):
        raise Problem(415, "unsupported_media_type", "the content type is none")
    return kind


@contextmanager
def _room_for_upload(ask: RestRequest, most: int) -> Generator[None]:
    """Hold room for a file, which is in memory until it is stored; uploads of a caller share that of two largest."""
    length, uploads, caller = ask.raw.headers.get("content-length", ""), ask.service.uploads, ask.caller.id
    size = min(most, int(length)) if length.isdigit() else most
    if uploads[caller] + size > 2 * most:
        detail = "this caller uploads too much at a time; send the next file when one of them is stored"
        raise Problem(429, "too_many_uploads", detail, headers={"Retry-After": "2"})
    uploads[caller] += size
    try:
        yield
    finally:
        uploads[caller] -= size
        if not uploads[caller]:
            del uploads[caller]


async def _find(ask: RestRequest) -> ArtifactRef:
    """Return an artifact that the caller may see; those of others are missing."""
    artifact_id = ask.path["artifact_id"]
    found = await ask.box.store.artifacts.info(artifact_id, tenant=ask.tenant, user=ask.only_user)
    if found is None:
        raise Problem(404, "artifact_not_found", f"there is no artifact {artifact_id!r}")
    return found


OPERATIONS = [
    Operation(
        id="list_artifacts",
        method="GET",
        path="/artifacts",
        summary="List large and binary results, the newest first",
        tag="artifacts",
        handler=_list_artifacts,
        query={"run": {"type": "string", "maxLength": 200}, "limit": LIMIT, "cursor": CURSOR},
        answers={200: page("Artifact")},
    ),
    Operation(
        id="upload_artifact",
        method="POST",
        path="/artifacts",
        summary="Upload a file that a call can be given",
        tag="artifacts",
        handler=_upload_artifact,
        scope=("call",),
        query={"name": {"type": "string", "maxLength": 200}},
        raw_body=True,
        answers={201: ref("Artifact")},
        problems=(503,),
    ),
    Operation(
        id="show_artifact",
        method="GET",
        path="/artifacts/{artifact_id}",
        summary="Show what is known of an artifact",
        tag="artifacts",
        handler=_show_artifact,
        answers={200: ref("Artifact")},
        problems=(404,),
    ),
    Operation(
        id="read_artifact",
        method="GET",
        path="/artifacts/{artifact_id}/content",
        summary="Read an artifact, or a part of it",
        tag="artifacts",
        handler=_read_artifact,
        headers={"Range": {"type": "string"}, "If-None-Match": {"type": "string"}},
        answers={200: {"*/*": {"type": "string", "format": "binary"}}, 206: {"*/*": {"type": "string"}}, 304: None},
        problems=(404, 416),
    ),
]
