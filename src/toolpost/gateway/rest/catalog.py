"""Operations on the catalog: list, search and show tools; add, reload and remove sources while calls go on."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict
from pydantic import ValidationError
from starlette.responses import Response

from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ToolError
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import (
    CURSOR,
    LIMIT,
    JsonResponse,
    Operation,
    RestRequest,
    decode_cursor,
    invalid_cursor,
    page_of,
    page_response,
)
from toolpost.gateway.rest.schemas import page, ref
from toolpost.gateway.source_changes import FROM_SIBLING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.contracts.spec import ToolSpec
    from toolpost.gateway.source_changes import ChangedSources
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.source_manager import SourceState


_FILTER = {"type": "string", "maxLength": 200}
_LONGEST_OFFSET = 6  # digits
_MATCH = {"If-None-Match": {"type": "string", "description": "The ETag of an earlier answer"}}


async def _list_tools(ask: RestRequest) -> Response:
    registry, query = ask.box.registry, ask.query
    try:
        specs: Sequence[ToolSpec] = registry.specs(query.get("collection"))
    except KeyError as error:
        raise Problem(404, "collection_not_found", str(error.args[0])) from None
    if "q" in query:
        return with_etag(ask, await _search_tools(ask))
    chosen = [spec for spec in specs if _is_wanted(spec, query) and ask.tools.has(spec.name)]
    response = page_of(ask, chosen, lambda spec: spec.name, lambda spec: _tool_to_dict(ask, spec))
    return with_etag(ask, response)


async def _search_tools(ask: RestRequest) -> Response:
    """Return a page of the tools that fit a query best; its cursor is the number of those before it."""
    query, limit = ask.query, ask.query["limit"]
    before = decode_cursor(query.get("cursor")) or "0"
    if not before.isdecimal() or len(before) > _LONGEST_OFFSET:
        raise invalid_cursor()
    offset = int(before)
    found = await ask.box.registry.search(
        query["q"],
        limit=limit + 1,
        offset=offset,
        collection=query.get("collection"),
        where=lambda spec: _is_wanted(spec, query) and ask.tools.has(spec.name),
    )
    return page_response(found, limit, lambda _spec: str(offset + limit), lambda spec: _tool_to_dict(ask, spec))


def _is_wanted(spec: ToolSpec, query: Any) -> bool:
    return query.get("source") in (None, spec.source) and ("tag" not in query or query["tag"] in spec.tags)


async def _show_tool(ask: RestRequest) -> Response:
    spec = ask.tools.find(ask.path["name"]).spec
    return with_etag(ask, JsonResponse(_tool_to_dict(ask, spec)))


def _tool_to_dict(ask: RestRequest, spec: ToolSpec) -> dict[str, Any]:
    """Return a tool as JSON data, with a warning where its definition has changed and was not accepted."""
    found = ask.box.registry.find(spec.name) if ask.box.registry.has(spec.name) else None
    change = None if found is None else found.unaccepted
    return {**spec.to_dict(), "warning": None if change is None else f"definition changed: {change.reason}"}


def with_etag(ask: RestRequest, response: Response) -> Response:
    """Return the response with its ETag, or that the client has it already."""
    etag = f'"{hashlib.sha256(bytes(response.body)).hexdigest()[:32]}"'
    known = ask.raw.headers.get("if-none-match", "")
    if known == "*" or etag in [one.strip().removeprefix("W/") for one in known.split(",")]:
        response = Response(status_code=304)
    response.headers["ETag"] = etag
    response.headers["Cache-Control"] = "private, no-cache"
    return response


async def _show_definition(ask: RestRequest) -> Response:
    """Show what has changed in a tool since it was last accepted."""
    hold = ask.box.registry.find(ask.path["name"]).unaccepted
    return JsonResponse({"status": "accepted"} if hold is None else {"status": "changed", **hold.payload()})


async def _accept_definition(ask: RestRequest) -> Response:
    """Accept a tool as the operator has seen it; the calls that wait for it continue."""
    entry = ask.box.registry.find(ask.path["name"])
    ask.box.pending.accept_definition(entry.spec.name, by=ask.user, expected=ask.body["hash"], operator=True)
    return JsonResponse({"status": "accepted"})


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
    accounts = ask.box.account_counts()
    for other in await ask.service.ask_siblings(ask.raw.scope, "GET", ask.raw.url.path):
        for name, one in other["calls"].items():
            calls[name] = _sum_of(calls[name], one) if name in calls else one
        accounts.add(other["accounts"])
    by_category = {category.value: count for category, count in stats.by_category.items()}
    webhooks = await ask.box.webhooks.states()
    # To another worker as counted: percentiles of several workers cannot be put together.
    signed_in = accounts.dump() if ask.raw.scope.get(FROM_SIBLING) else accounts.snapshot()
    facts = {"tools": stats.total, "by_category": by_category, "calls": calls, "accounts": signed_in}
    return JsonResponse({**facts, "webhooks": webhooks})


def _sum_of(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the calls of one tool in two workers together."""
    count = one["count"] + other["count"]
    whole_ms = one["count"] * one["average_ms"] + other["count"] * other["average_ms"]
    sums = {name: one[name] + other[name] for name in ("count", "failures", "misfits")}
    return {**sums, "average_ms": round(whole_ms / count, 3) if count else 0.0}


TOOL_OPERATIONS = [
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
        id="show_definition",
        method="GET",
        path="/tools/{name}/definition",
        summary="Show what has changed in a tool since its definition was accepted",
        tag="tools",
        handler=_show_definition,
        scope=("admin",),
        operator=True,
        answers={200: ref("Definition")},
        problems=(404,),
    ),
    Operation(
        id="accept_definition",
        method="POST",
        path="/tools/{name}/definition",
        summary="Accept a tool as it is now; the calls that wait for it continue",
        tag="tools",
        handler=_accept_definition,
        scope=("admin",),
        operator=True,
        takes=ref("AcceptedDefinition"),
        answers={200: ref("Definition")},
        problems=(404, 409),
    ),
    Operation(
        id="show_stats",
        method="GET",
        path="/stats",
        summary="Count tools, their calls since the start, and what webhooks have received",
        tag="tools",
        handler=_show_stats,
        scope=("answer", "admin"),
        answers={200: ref("Stats")},
    ),
]


async def _list_sources(ask: RestRequest) -> Response:
    return JsonResponse([asdict(state) for state in ask.box.report])


async def _show_source(ask: RestRequest) -> Response:
    return JsonResponse(asdict(_find_source(ask)))


async def _add_source(ask: RestRequest) -> Response:
    """Connect one more source until the gateway stops; the configuration file stays as it is."""
    try:
        config = ExternalToolConfig.model_validate(ask.body)
    except ValidationError as error:
        issues = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise Problem(422, "invalid_body", f"the source does not fit: {issues[0]}", errors=issues) from None
    if any(state.name == config.name for state in ask.box.report):
        raise Problem(409, "source_exists", f"there is a source {config.name!r} already; remove it first")
    await ask.box.sources.add(config)
    ask.service.changed_sources.add(config.name, ask.body)
    await _tell_others(ask)
    added = [state for state in ask.box.report if state.name == config.name]
    return JsonResponse(asdict(added[0]) if added else _absent(config), 201)


def _absent(config: ExternalToolConfig) -> dict[str, Any]:
    """Return the state of a source that is switched off."""
    return {
        "name": config.name,
        "transport": str(config.transport),
        "ok": False,
        "tools": 0,
        "error": "it is not enabled",
        "state": "down",
    }


async def _reload_source(ask: RestRequest) -> Response:
    """Open a source anew with its settings; calls under way end on the old one."""
    name = _find_source(ask).name
    await ask.box.sources.reload(name)
    await _tell_others(ask)
    return JsonResponse(asdict(_find_source(ask)))


async def _remove_source(ask: RestRequest) -> Response:
    name = _find_source(ask).name
    await ask.box.sources.remove(name)
    configured = {source.name for source in ask.box.settings.all_sources()}
    ask.service.changed_sources.remove(name, is_configured=name in configured)
    await _tell_others(ask)
    return Response(status_code=204)


async def _tell_others(ask: RestRequest) -> None:
    """Have the other workers do the same."""
    request = ask.raw
    await ask.service.ask_siblings(request.scope, request.method, request.url.path, ask.body)


async def apply_changes(box: Toolbox, changed: ChangedSources) -> None:
    """Change the sources as other workers were told to before this one was started."""
    for name, change in changed.changes.items():
        if any(state.name == name for state in box.report):
            await box.sources.remove(name)
        with suppress(ToolError):  # one that cannot be had now could not be had there either
            if "add" in change:
                await box.sources.add(ExternalToolConfig.model_validate(change["add"]))


def _find_source(ask: RestRequest) -> SourceState:
    name = ask.path["name"]
    for state in ask.box.report:
        if state.name == name:
            return state
    raise Problem(404, "source_not_found", f"there is no source {name!r}")


SOURCE_OPERATIONS = [
    Operation(
        id="list_sources",
        method="GET",
        path="/sources",
        summary="List the sources, and how each is",
        tag="sources",
        handler=_list_sources,
        answers={200: {"type": "array", "items": ref("Source")}},
    ),
    Operation(
        id="show_source",
        method="GET",
        path="/sources/{name}",
        summary="Show how one source is",
        tag="sources",
        handler=_show_source,
        answers={200: ref("Source")},
        problems=(404,),
    ),
    Operation(
        id="add_source",
        method="POST",
        path="/sources",
        summary="Connect one more source, until the gateway stops",
        tag="sources",
        handler=_add_source,
        scope=("admin",),
        operator=True,
        takes={
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "transport": {"type": "string"},
                "connection": {"type": "string"},
            },
            "required": ["name", "transport", "connection"],
            "description": "The keys of an entry of `sources` in toolpost.yaml",
        },
        answers={201: ref("Source")},
        problems=(409,),
    ),
    Operation(
        id="reload_source",
        method="POST",
        path="/sources/{name}/reload",
        summary="Open a source anew; calls under way end on the old one",
        tag="sources",
        handler=_reload_source,
        scope=("admin",),
        operator=True,
        answers={200: ref("Source")},
        problems=(404, 502, 503, 504),
    ),
    Operation(
        id="remove_source",
        method="DELETE",
        path="/sources/{name}",
        summary="Remove a source; calls under way end first",
        tag="sources",
        handler=_remove_source,
        scope=("admin",),
        operator=True,
        answers={204: None},
        problems=(404,),
    ),
]
