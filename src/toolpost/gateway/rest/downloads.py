"""Operations on download links: a browser downloads a large artifact without a bearer, once and within a minute."""

from __future__ import annotations

import hmac
import json
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, NamedTuple

from toolpost.contracts.callers import OPERATOR_ID
from toolpost.gateway.access import DOWNLOADS, OPEN_REQUESTS, caller_digest
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.artifacts import content_response, find_artifact
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.schema_builders import ref

if TYPE_CHECKING:
    from starlette.responses import Response

    from toolpost.contracts.storage import Store

OPERATIONS = Operations("artifacts")
LINK_S = 60.0
_MAC = "download link"
_MAC_CHARACTERS = 64


class _Link(NamedTuple):
    tenant: str
    artifact_id: str
    expires_at: float
    nonce: str
    caller: str  # the digest of who created it; empty for the operator, who has no limits


@OPERATIONS.declare("POST", "/artifacts/{artifact_id}/link", answers={201: ref("DownloadLink")}, problems=(404,))
async def link_artifact(request: RestRequest) -> Response:
    """Create a link that downloads an artifact once, within a minute."""
    found = await find_artifact(request)
    caller = "" if request.caller.id == OPERATOR_ID else caller_digest(request.caller.id)
    link = _Link(found.tenant, found.id, time.time() + LINK_S, secrets.token_urlsafe(16), caller)
    text = urlsafe_b64encode(json.dumps(link).encode()).decode()
    mac = request.box.store.mac(_MAC, text.encode()).hex()[:_MAC_CHARACTERS]
    # In the query: logs and spans of the gateway contain paths, but no queries.
    url = f"{request.service.public_url}{DOWNLOADS}?token={text}.{mac}"
    return JsonResponse({"url": url, "expires_at": link.expires_at}, 201)


@OPERATIONS.declare(
    "GET",
    "/downloads",
    no_caller=True,
    query={"token": {"type": "string", "maxLength": 2000}},
    answers={200: {"*/*": {"type": "string", "format": "binary"}}},
    problems=(404, 410),
)
async def download_artifact(request: RestRequest) -> Response:
    """Download an artifact with the token of a link; it counts as an open request of the caller who created it."""
    store = request.box.store
    link = _read(store, request.query.get("token", ""))
    if link is None:
        raise Problem(404, "unknown_link", "this is not a link of this gateway; create one at /artifacts/{id}/link")
    if link.caller:
        request.raw.scope[OPEN_REQUESTS] = await request.service.limits.admit_download(link.caller)
    if time.time() > link.expires_at or not await _claim(store, link):
        raise Problem(410, "link_used", "the link was used, or has expired; create another at /artifacts/{id}/link")
    found = await store.artifacts.info(link.artifact_id, tenant=link.tenant)
    if found is None:
        raise Problem(404, "artifact_not_found", f"unknown artifact {link.artifact_id!r}")
    return await content_response(request, found)


def _read(store: Store, token: str) -> _Link | None:
    text, _, mac = token.rpartition(".")
    if not hmac.compare_digest(store.mac(_MAC, text.encode()).hex()[:_MAC_CHARACTERS].encode(), mac.encode()):
        return None
    return _Link(*json.loads(urlsafe_b64decode(text)))


async def _claim(store: Store, link: _Link) -> bool:
    """Return whether the link is used for the first time, in any process; the record is pruned after it expired."""
    return await store.state.claim_planner_state(f"download:{link.nonce}", {"expires_at": link.expires_at})
