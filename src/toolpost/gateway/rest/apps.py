"""Operations on MCP Apps: the page that a tool of a server names, for a sandboxed frame of another origin."""

from __future__ import annotations

import hmac
import json
import re
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import Response

from toolpost.contracts.context import ToolContext
from toolpost.contracts.outcomes import Completed, Failed
from toolpost.contracts.storage import ArtifactRef
from toolpost.gateway.access import APPS
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.schema_builders import ref
from toolpost.gateway.rest.tool_documents import app_of
from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from toolpost.contracts.storage import Store

OPERATIONS = Operations("tools")
LINK_S = 60.0
_MAC, _MAC_CHARACTERS = "app link", 64
_READ = "resources_read"
_MOST_DOMAINS = 32
_NOWHERE = "'none'"
# An origin, with a wildcard for its subdomains; nothing else that a server sends may be in a header.
_DOMAIN = re.compile(r"(?:https|wss)://(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?(?::[0-9]{1,5})?")


class _Link(NamedTuple):
    tenant: str
    artifact_id: str
    connect: list[str]
    resources: list[str]
    expires_at: float
    nonce: str


@OPERATIONS.declare(
    "POST", "/tools/{name}/app", scope=("call",), answers={201: ref("AppLink")}, problems=(404, 409, 502)
)
async def open_app(request: RestRequest) -> Response:
    """Read the page of a tool, and create a link that opens it once, within a minute, in a sandboxed frame."""
    spec = request.tools.find(request.path["name"]).spec
    uri = app_of(spec)
    if uri is None:
        raise Problem(404, "no_app", f"{spec.name!r} has no page")
    page = await _read_page(request, f"{spec.source}.{_READ}", uri)
    stored = await request.box.store.artifacts.put(
        str(page["text"]).encode(),
        ArtifactRef(
            id="",
            sha256="",
            size=0,
            media_type="text/html",
            name=uri,
            tenant=request.tenant,
            user=request.caller.principal.user,
            run_id=request.box.router.new_id("run"),
            call_id="",
            tool_name=spec.name,
            created_at=time.time(),
        ),
    )
    csp = _csp_of(page)
    expires_at = time.time() + LINK_S
    connect, resources = _domains(csp.get("connectDomains")), _domains(csp.get("resourceDomains"))
    link = _Link(stored.tenant, stored.id, connect, resources, expires_at, secrets.token_urlsafe(16))
    text = urlsafe_b64encode(json.dumps(link).encode()).decode()
    url = f"{request.service.public_url}{APPS}?token={text}.{_mac(request.box.store, text)}"
    return JsonResponse({"url": url, "expires_at": expires_at}, 201)


@OPERATIONS.declare(
    "GET",
    "/apps",
    no_caller=True,
    query={"token": {"type": "string", "maxLength": 16_000}},
    answers={200: {"text/html": {"type": "string"}}},
    problems=(404, 410),
)
async def show_app(request: RestRequest) -> Response:
    """Show the page of a tool with the token of a link. Its policy makes its origin opaque, wherever it is opened."""
    store = request.box.store
    text, _, mac = request.query.get("token", "").rpartition(".")
    if not hmac.compare_digest(_mac(store, text).encode(), mac.encode()):
        raise Problem(404, "unknown_link", "this is not a link of this gateway; create one at /tools/{name}/app")
    link = _Link(*json.loads(urlsafe_b64decode(text)))
    claimed = await store.state.claim_planner_state(f"app:{link.nonce}", {"expires_at": link.expires_at})
    if time.time() > link.expires_at or not claimed:
        raise Problem(410, "link_used", "the link was used, or has expired; create another at /tools/{name}/app")
    content = await store.artifacts.read(link.artifact_id, tenant=link.tenant)
    headers = {"Content-Security-Policy": _policy(link), "X-Frame-Options": "SAMEORIGIN"}
    return Response(content, headers=headers, media_type="text/html")


async def _read_page(request: RestRequest, tool: str, uri: str) -> Mapping[str, Any]:
    """Read the page as the caller; a rule that asks for approval, or denies it, applies."""
    context = ToolContext(caller=request.caller.id)
    from toolpost.gateway.mcp.results import whole_content  # noqa: PLC0415 - loads the SDK

    outcome = await request.tools.call(tool, {"uri": uri}, user=request.user, context=context)
    match outcome:
        case Completed():
            content = await whole_content(outcome.content, request.box.store.artifacts, request.caller.principal)
        case Failed():
            raise Problem(502, "app_unreadable", f"the page of the tool cannot be read: {outcome.error.message}")
        case _:
            raise Problem(409, "app_waits", f"reading the page needs an answer first: {outcome.pending_id}")
    contents: Any = content.get("contents") if is_object(content) else content
    for one in contents if is_array(contents) else ():
        if is_object(one) and isinstance(one.get("text"), str):
            return one
    raise Problem(502, "app_unreadable", f"the server has no text for {uri}")


def _csp_of(page: Mapping[str, Any]) -> Mapping[str, Any]:
    meta: Any = page.get("_meta")
    ui: Any = meta.get("ui") if is_object(meta) else None
    csp: Any = ui.get("csp") if is_object(ui) else None
    return csp if is_object(csp) else {}


def _domains(given: Any) -> list[str]:
    named: Sequence[Any] = given if is_array(given) else ()
    return [one for one in named[:_MOST_DOMAINS] if isinstance(one, str) and _DOMAIN.fullmatch(one)]


def _policy(link: _Link) -> str:
    """Return the policy of the page: what its resource declares, and nothing of this gateway."""
    resources = " ".join(link.resources)
    return "; ".join(
        (
            "sandbox allow-scripts",
            "default-src 'none'",
            f"script-src 'unsafe-inline' {resources}",
            f"style-src 'unsafe-inline' {resources}",
            f"img-src data: blob: {resources}",
            f"font-src data: {resources}",
            f"media-src data: blob: {resources}",
            f"connect-src {' '.join(link.connect) or _NOWHERE}",
            "frame-ancestors 'self'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _mac(store: Store, text: str) -> str:
    return store.mac(_MAC, text.encode()).hex()[:_MAC_CHARACTERS]
