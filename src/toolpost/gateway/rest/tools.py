"""Operations on the catalog: list, search and show tools, and count their calls."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import CURSOR, LIMIT, JsonResponse, Operation, RestRequest, page_of
from toolpost.gateway.rest.schemas import page, ref

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.contracts.spec import ToolSpec

_FILTER = {"type": "string", "maxLength": 200}


async def _list_tools(ask: RestRequest) -> Response:
    registry, query = ask.box.registry, ask.query
    try:
        specs: Sequence[ToolSpec] = registry.specs(query.get("collection"))
    except KeyError as error:
        raise Problem(404, "collection_not_found", str(error.args[0])) from None
    if "q" in query:
        found = await registry.search(
            query["q"],
            limit=query["limit"],
            collection=query.get("collection"),
            where=lambda spec: ask.tools.has(spec.name),
        )
        specs = [*found]
    chosen = [spec for spec in specs if _is_wanted(spec, query) and ask.tools.has(spec.name)]
    response = page_of(ask, chosen, lambda spec: spec.name, lambda spec: spec.to_dict())
    return with_etag(ask, response)


def _is_wanted(spec: ToolSpec, query: Any) -> bool:
    return query.get("source") in (None, spec.source) and ("tag" not in query or query["tag"] in spec.tags)


async def _show_tool(ask: RestRequest) -> Response:
    spec = ask.tools.find(ask.path["name"]).spec
    return with_etag(ask, JsonResponse(spec.to_dict()))


def with_etag(ask: RestRequest, response: Response) -> Response:
    """Return the response with its ETag, or that the client has it already."""
    etag = f'"{hashlib.sha256(bytes(response.body)).hexdigest()[:32]}"'
    known = ask.raw.headers.get("if-none-match", "")
    if known == "*" or etag in [one.strip().removeprefix("W/") for one in known.split(",")]:
        response = Response(status_code=304)
    response.headers["ETag"] = etag
    response.headers["Cache-Control"] = "private, no-cache"
    return response


async def _show_stats(ask: RestRequest) -> Response:
    stats = ask.box.registry.get_stats()
    calls: dict[str, Any] = {
        name: {
            "count": one.count,
            "failures": one.failures,
            "average_ms": round(one.avg_duration, 3),
            "misfits": one.misfits,
        }
        for name, one in stats.call_stats.items()
    }
    for other in await ask.service.ask_siblings(ask.raw.scope, "GET", ask.raw.url.path):
        for name, one in other["calls"].items():
            calls[name] = _sum_of(calls[name], one) if name in calls else one
    by_category = {category.value: count for category, count in stats.by_category.items()}
    webhooks = await ask.box.webhooks.states()
    return JsonResponse({"tools": stats.total, "by_category": by_category, "calls": calls, "webhooks": webhooks})


def _sum_of(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the calls of one tool in two workers together."""
    count = one["count"] + other["count"]
    whole_ms = one["count"] * one["average_ms"] + other["count"] * other["average_ms"]
    sums = {name: one[name] + other[name] for name in ("count", "failures", "misfits")}
    return {**sums, "average_ms": round(whole_ms / count, 3) if count else 0.0}


_MATCH = {"If-None-Match": {"type": "string", "description": "The ETag of an earlier answer"}}
OPERATIONS = [
    Operation(
        id="list_tools",
        method="GET",
        path="/tools",
        summary="List the tools, or search them by what they do",
        tag="tools",
        handler=_list_tools,
        query={
            "q": {"type": "string", "minLength": 1, "maxLength": 400, "description": "What the tool does"},
            "source": _FILTER,
            "tag": _FILTER,
            "collection": _FILTER,
            "limit": LIMIT,
            "cursor": CURSOR,
        },
        headers=_MATCH,
        answers={200: page("Tool"), 304: None},
        problems=(404,),
    ),
    Operation(
        id="show_tool",
        method="GET",
        path="/tools/{name}",
        summary="Show one tool",
        tag="tools",
        handler=_show_tool,
        headers=_MATCH,
        answers={200: ref("Tool"), 304: None},
        problems=(404,),
    ),
    Operation(
        id="show_stats",
        method="GET",
        path="/stats",
        summary="Count tools, their calls since the start, and what webhooks have received",
        tag="tools",
        handler=_show_stats,
        scope=("admin", "answer"),
        answers={200: ref("Stats")},
    ),
]
