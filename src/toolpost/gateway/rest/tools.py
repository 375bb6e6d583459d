"""Operations on tools: list, search and show them, accept changed definitions, and count calls."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.components import page, ref
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.pages import PAGE, decode_cursor, invalid_cursor, page_of, page_response
from toolpost.gateway.source_changes import FROM_SIBLING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.contracts.spec import ToolSpec

OPERATIONS = Operations("tools")
_FILTER = {"type": "string", "maxLength": 200}
_LONGEST_OFFSET = 6  # digits
_MATCH = {"If-None-Match": {"type": "string", "description": "The ETag of an earlier response"}}


@OPERATIONS.declare(
    "GET",
    "/tools",
    query={
        "q": {"type": "string", "minLength": 1, "maxLength": 400, "description": "Words that describe the tool"},
        "source": _FILTER,
        "tag": _FILTER,
        "collection": _FILTER,
        **PAGE,
    },
    headers=_MATCH,
    answers={200: page("Tool"), 304: None},
    problems=(404,),
)
async def list_tools(request: RestRequest) -> Response:
    """List tools, or search them by description."""
    registry, query = request.box.registry, request.query
    try:
        specs: Sequence[ToolSpec] = registry.specs(query.get("collection"))
    except KeyError as error:
        raise Problem(404, "collection_not_found", str(error.args[0])) from None
    if "q" in query:
        return _with_etag(request, await _search_tools(request))
    chosen = [spec for spec in specs if _is_wanted(spec, query) and request.tools.has(spec.name)]
    response = page_of(request, chosen, lambda spec: spec.name, lambda spec: _to_dict(request, spec))
    return _with_etag(request, response)


@OPERATIONS.declare("GET", "/tools/{name}", headers=_MATCH, answers={200: ref("Tool"), 304: None}, problems=(404,))
async def show_tool(request: RestRequest) -> Response:
    """Show one tool."""
    spec = request.tools.find(request.path["name"]).spec
    return _with_etag(request, JsonResponse(_to_dict(request, spec)))


@OPERATIONS.declare(
    "GET",
    "/tools/{name}/definition",
    scope=("admin",),
    operator=True,
    answers={200: ref("Definition")},
    problems=(404,),
)
async def show_definition(request: RestRequest) -> Response:
    """Show the changes of a tool since its definition was accepted."""
    change = request.box.registry.find(request.path["name"]).unaccepted
    return JsonResponse({"status": "accepted"} if change is None else {"status": "changed", **change.payload()})


@OPERATIONS.declare(
    "POST",
    "/tools/{name}/definition",
    scope=("admin",),
    operator=True,
    takes=ref("AcceptedDefinition"),
    answers={200: ref("Definition")},
    problems=(404, 409),
)
async def accept_definition(request: RestRequest) -> Response:
    """Accept the current definition of a tool, and resume the calls that wait for it."""
    entry = request.box.registry.find(request.path["name"])
    request.box.pending.accept_definition(
        entry.spec.name, by=request.user, expected=request.body["hash"], operator=True
    )
    return JsonResponse({"status": "accepted"})


@OPERATIONS.declare("GET", "/stats", scope=("answer", "admin"), answers={200: ref("Stats")})
async def show_stats(request: RestRequest) -> Response:
    """Count tools, their calls since the start, and webhook deliveries."""
    stats = request.box.registry.get_stats()
    calls: dict[str, Any] = {
        name: {
            "count": one.count,
            "failures": one.failures,
            "average_ms": round(one.avg_duration, 3),
            "schema_violations": one.schema_violations,
        }
        for name, one in stats.call_stats.items()
    }
    accounts = request.box.account_counts()
    for other in await request.service.request_siblings(request.raw):
        for name, one in other["calls"].items():
            calls[name] = _sum_of(calls[name], one) if name in calls else one
        accounts.add(other["accounts"])
    by_category = {category.value: count for category, count in stats.by_category.items()}
    webhooks = await request.box.webhooks.states()
    # Another worker gets the raw counts, because percentiles of several workers cannot be combined.
    signed_in = accounts.dump() if request.raw.scope.get(FROM_SIBLING) else accounts.snapshot()
    facts = {"tools": stats.total, "by_category": by_category, "calls": calls, "accounts": signed_in}
    return JsonResponse({**facts, "webhooks": webhooks})


async def _search_tools(request: RestRequest) -> Response:
    """Return a page of search results; its cursor is the offset of the next page."""
    query, limit = request.query, request.query["limit"]
    before = decode_cursor(query.get("cursor")) or "0"
    if not before.isdecimal() or len(before) > _LONGEST_OFFSET:
        raise invalid_cursor()
    offset = int(before)
    found = await request.box.registry.search(
        query["q"],
        limit=limit + 1,
        offset=offset,
        collection=query.get("collection"),
        where=lambda spec: _is_wanted(spec, query) and request.tools.has(spec.name),
    )
    return page_response(found, limit, lambda _spec: str(offset + limit), lambda spec: _to_dict(request, spec))


def _is_wanted(spec: ToolSpec, query: Any) -> bool:
    return query.get("source") in (None, spec.source) and ("tag" not in query or query["tag"] in spec.tags)


def _to_dict(request: RestRequest, spec: ToolSpec) -> dict[str, Any]:
    """Return a tool as JSON data, with a warning if its definition has changed and is not accepted."""
    found = request.box.registry.find(spec.name) if request.box.registry.has(spec.name) else None
    change = None if found is None else found.unaccepted
    return {**spec.to_dict(), "warning": None if change is None else f"definition changed: {change.reason}"}


def _with_etag(request: RestRequest, response: Response) -> Response:
    """Return the response with its ETag, or 304 if the client already has it."""
    etag = f'"{hashlib.sha256(bytes(response.body)).hexdigest()[:32]}"'
    known = request.raw.headers.get("if-none-match", "")
    if known == "*" or etag in [one.strip().removeprefix("W/") for one in known.split(",")]:
        response = Response(status_code=304)
    response.headers["ETag"] = etag
    response.headers["Cache-Control"] = "private, no-cache"
    return response


def _sum_of(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Add up the calls of one tool in two workers."""
    count = one["count"] + other["count"]
    whole_ms = one["count"] * one["average_ms"] + other["count"] * other["average_ms"]
    sums = {name: one[name] + other[name] for name in ("count", "failures", "schema_violations")}
    return {**sums, "average_ms": round(whole_ms / count, 3) if count else 0.0}
