"""Operations on tools: list, search and show them, accept changed definitions, and count calls."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from starlette.responses import Response

from toolpost.catalog.entry import Entry
from toolpost.contracts.spec import SideEffects, ToolCategory
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.insight import duration_percentiles, metrics_by_tool
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest, json_bytes
from toolpost.gateway.rest.pages import PAGE, decode_cursor, encode_cursor, invalid_cursor
from toolpost.gateway.rest.schema_builders import MAYBE_TEXT, array, record, ref
from toolpost.gateway.source_changes import FROM_SIBLING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolpost.contracts.metrics import MetricRow
    from toolpost.contracts.spec import ToolSpec
    from toolpost.gateway.rest.tool_documents import ToolDocuments

OPERATIONS = Operations("tools")
_FILTER = {"type": "string", "maxLength": 200}
_FLAG = {"type": "string", "enum": ["yes", "no"]}
_OFFSET = "at "  # in a cursor, before an offset; no tool has a name with a blank
_LONGEST_OFFSET = 6  # digits
_MOST_WHOLE = 500  # tools in a page with schemas
_MOST_SUMMARIES = 20_000
_FACETS = ("source", "tag", "side_effects", "category", "verdict")
_FACET = f"({'|'.join(_FACETS)})"
_MATCH = {"If-None-Match": {"type": "string", "description": "The ETag of an earlier response"}}
_DESTRUCTIVE = {"yes": True, "no": False, "unknown": None}


@OPERATIONS.declare(
    "GET",
    "/tools",
    query={
        "q": {"type": "string", "minLength": 1, "maxLength": 400, "description": "Words, or part of the name"},
        "view": {
            "type": "string",
            "enum": ["full", "summary"],
            "default": "full",
            "description": "`summary`: without schemas, up to 20,000 tools in a page instead of 500",
        },
        "source": _FILTER,
        "tag": _FILTER,
        "collection": _FILTER,
        "category": {"type": "string", "enum": [category.value for category in ToolCategory]},
        "side_effects": {"type": "string", "enum": list(get_args(SideEffects))},
        "destructive": {"type": "string", "enum": ["yes", "no", "unknown"]},
        "verdict": {
            "type": "string",
            "enum": ["allow", "ask", "deny"],
            "description": "What the policy decides about the calls of the tool",
        },
        "held": {**_FLAG, "description": "Whether its definition changed and is not accepted"},
        "deprecated": _FLAG,
        "tokens": {**_FLAG, "default": "no", "description": "Count the tokens of the definition of each tool"},
        "sort": {
            "type": "string",
            "enum": ["name", "source", "calls"],
            "description": "By default the best matches of `q` first, or the order of the catalog",
        },
        "facets": {
            "type": "string",
            "pattern": f"^{_FACET}(,{_FACET})*$",
            "description": "Properties by whose values the tools are counted, separated by commas. The filter of "
            "the same property does not apply to its counts.",
        },
        **PAGE,
        "limit": {**PAGE["limit"], "maximum": _MOST_SUMMARIES},
    },
    headers=_MATCH,
    answers={
        200: record(
            {
                "items": array({"oneOf": [ref("Tool"), ref("ToolSummary")]}),
                "next": MAYBE_TEXT,
                "total": {"type": "integer", "description": "The number of matching tools"},
                "took_ms": {"type": "number"},
            },
            {
                "facets": {
                    "type": "object",
                    "description": "The number of tools by value, for each requested property",
                    "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer"}},
                },
                "tokens": {"type": "integer", "description": "Tokens of the definitions of all matching tools"},
                "tokenizer": {"type": "string", "description": "The vocabulary that counted them, or `estimate`"},
            },
        ),
        304: None,
    },
    problems=(404,),
)
async def list_tools(request: RestRequest) -> Response:
    """List tools, or search them by description."""
    began, query, documents = time.perf_counter(), request.query, request.service.tools
    is_summary, limit = query["view"] == "summary", query["limit"]
    if limit > _MOST_WHOLE and not is_summary:
        detail = f"a page of whole tools has at most {_MOST_WHOLE}; use `view=summary` for more"
        raise Problem(400, "invalid_parameter", f"the parameter 'limit' is invalid: {detail}")
    listing = await _matching_tools(request)
    begin = _begin_of_page(query.get("cursor"), listing.tools)
    page = listing.tools[begin : begin + limit]
    show = documents.summary if is_summary else documents.document
    body: dict[str, Any] = {
        "items": [show(entry) for entry in page],
        "next": _cursor(query, page, begin + limit) if len(listing.tools) > begin + limit else None,
        "total": len(listing.tools),
    }
    if "facets" in query:
        body["facets"] = {facet: listing.count_by(facet) for facet in query["facets"].split(",")}
    if query["tokens"] == "yes":
        counter = await documents.counter()
        counts = {entry.spec.name: documents.tokens(entry, counter) for entry in listing.tools}
        body["items"] = [{**item, "tokens": counts[item["name"]]} for item in body["items"]]
        body |= {"tokens": sum(counts.values()), "tokenizer": counter.tokenizer}
    tag = etag_of(json_bytes(body))
    took_ms = round((time.perf_counter() - began) * 1000, 1)
    return with_etag(request, JsonResponse({**body, "took_ms": took_ms}), tag)


class _Listing(NamedTuple):
    """The tools that match all filters, in order; `almost` are those that only the filter of one property excludes."""

    tools: Sequence[Entry]
    almost: Mapping[str, Sequence[Entry]]
    documents: ToolDocuments

    def count_by(self, facet: str) -> dict[str, int]:
        """Count the tools by a property, without the filter of this property; the most frequent value first."""
        counts: Counter[str] = Counter()
        key = "tags" if facet == "tag" else facet
        for entry in (*self.tools, *self.almost.get(facet, ())):
            value = self.documents.summary(entry)[key]
            counts.update(value if facet == "tag" else [value])
        return dict(counts.most_common())


async def _matching_tools(request: RestRequest) -> _Listing:
    registry, query, documents = request.box.registry, request.query, request.service.tools
    try:
        specs: Sequence[ToolSpec] = registry.specs(query.get("collection"))
    except KeyError as error:
        raise Problem(404, "collection_not_found", str(error.args[0])) from None
    documents.prune({spec.name for spec in specs} if "collection" not in query else set())
    if "q" in query:
        # All results, not one page: the order of a search depends on how many results it ranks.
        found = await registry.search(query["q"], limit=len(specs), collection=query.get("collection"))
        specs = found or _with_name_part(specs, query["q"])
    wanted = {name: query[name] for name in _FILTERS if name in query}
    tools, almost = list[Entry](), dict[str, list[Entry]]()
    for spec in specs:
        if not request.tools.has(spec.name) or not registry.has(spec.name):
            continue
        entry = registry.find(spec.name)
        summary = documents.summary(entry) if wanted else {}
        failed = [name for name, value in wanted.items() if not _FILTERS[name](summary, value)]
        if not failed:
            tools.append(entry)
        elif len(failed) == 1:
            almost.setdefault(failed[0], []).append(entry)
    match query.get("sort"):
        case "name":
            tools.sort(key=lambda entry: entry.spec.name)
        case "source":
            tools.sort(key=lambda entry: (entry.spec.source, entry.spec.name))
        case "calls":
            tools.sort(key=lambda entry: (-entry.counts.count, entry.spec.name))
        case _:
            pass
    return _Listing(tools, almost, documents)


def _with_name_part(specs: Sequence[ToolSpec], text: str) -> list[ToolSpec]:
    """Return the tools whose name contains a text, such as a word that is not typed to its end, by name."""
    part = text.strip().casefold()
    return sorted((spec for spec in specs if part and part in spec.name.casefold()), key=lambda spec: spec.name)


def _is_equal(name: str) -> Callable[[Mapping[str, Any], str], bool]:
    return lambda summary, value: summary[name] == value


def _is_flag(name: str) -> Callable[[Mapping[str, Any], str], bool]:
    return lambda summary, value: summary[name] is (value == "yes")


_FILTERS: Mapping[str, Callable[[Mapping[str, Any], str], bool]] = {
    **{name: _is_equal(name) for name in ("source", "category", "side_effects", "verdict")},
    **{name: _is_flag(name) for name in ("held", "deprecated")},
    "tag": lambda summary, value: value in summary["tags"],
    "destructive": lambda summary, value: summary["destructive"] is _DESTRUCTIVE[value],
}


def _begin_of_page(cursor: str | None, tools: Sequence[Entry]) -> int:
    """Return the index of the first tool of a page: after the named tool, or an offset in search results."""
    position = decode_cursor(cursor)
    if position is None:
        return 0
    if position.startswith(_OFFSET):
        offset = position.removeprefix(_OFFSET)
        if offset.isdecimal() and len(offset) <= _LONGEST_OFFSET:
            return int(offset)
        raise invalid_cursor()
    begin = next((at for at, entry in enumerate(tools, 1) if entry.spec.name == position), None)
    if begin is None:
        raise invalid_cursor()
    return begin


def _cursor(query: Mapping[str, Any], page: Sequence[Entry], end: int) -> str:
    is_ranked = "q" in query or query.get("sort") == "calls"  # the order may change between two pages
    return encode_cursor(f"{_OFFSET}{end}" if is_ranked else page[-1].spec.name)


@OPERATIONS.declare("GET", "/collections", answers={200: array(ref("Collection"))})
async def list_collections(request: RestRequest) -> Response:
    """List the collections of tools and count their members."""
    names = [entry.spec.name for entry in request.tools.entries()]
    listed: list[dict[str, Any]] = []
    for name, members in request.box.registry.collections.items():
        specs = {spec.name for spec in request.box.registry.specs(name)}
        listed.append({"name": name, "members": list(members), "tools": len(specs.intersection(names))})
    return JsonResponse(listed)


@OPERATIONS.declare("GET", "/tags", answers={200: array(ref("Tag"))})
async def list_tags(request: RestRequest) -> Response:
    """List the tags of tools, the most frequent first."""
    counts = Counter(tag for entry in request.tools.entries() for tag in entry.spec.tags)
    return JsonResponse([{"tag": tag, "tools": count} for tag, count in counts.most_common()])


@OPERATIONS.declare("GET", "/tools/{name}", headers=_MATCH, answers={200: ref("Tool"), 304: None}, problems=(404,))
async def show_tool(request: RestRequest) -> Response:
    """Show one tool."""
    entry, documents = request.tools.find(request.path["name"]), request.service.tools
    facts = {**documents.document(entry), **await documents.details(entry)}
    response = JsonResponse(facts if request.caller.sees_gateway else {**facts, "stats": None})
    return with_etag(request, response, etag_of(bytes(response.body)))


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
    """Count tools, their calls since the start, and webhook deliveries; a tenant gets only the counts of its calls."""
    since, registered = request.service.started_at, request.box.registry.get_stats()
    counted = await metrics_by_tool(request.box.store, tenant=request.tenant, since=since)
    durations = {name: duration_percentiles(row) for name, row in counted.items()}
    counts: dict[str, Any] = {"accounts": None, "webhooks": []}
    counts["calls"] = {name: _tenant_calls(row) for name, row in counted.items()}
    if request.caller.sees_gateway:
        counts = await _count_gateway(request)
    by_category = {category.value: count for category, count in registered.by_category.items()}
    facts = {"tools": registered.total, "by_category": by_category, "since": since, "durations": durations}
    return JsonResponse({**facts, **counts})


async def _count_gateway(request: RestRequest) -> dict[str, Any]:
    """Return the counts of all tenants, summed over the workers."""
    calls: dict[str, Any] = {
        name: {
            "count": one.count,
            "failures": one.failures,
            "average_ms": round(one.avg_duration, 3),
            "schema_violations": one.schema_violations,
        }
        for name, one in request.box.registry.get_stats().call_stats.items()
    }
    accounts = request.box.account_counts()
    for other in await request.service.request_siblings(request.raw):
        for name, one in other["calls"].items():
            calls[name] = _sum_of(calls[name], one) if name in calls else one
        accounts.add(other["accounts"])
    # Another worker gets the raw counts, because percentiles of several workers cannot be combined.
    signed_in = accounts.dump() if request.raw.scope.get(FROM_SIBLING) else accounts.snapshot()
    return {"calls": calls, "accounts": signed_in, "webhooks": await request.box.webhooks.states()}


def _tenant_calls(row: MetricRow) -> dict[str, Any]:
    return {"count": row.calls, "failures": row.failed, "average_ms": None, "schema_violations": None}


def etag_of(content: bytes) -> str:
    """Return the ETag of content."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def with_etag(request: RestRequest, response: Response, etag: str) -> Response:
    """Return the response with its ETag, or 304 if the client already has it."""
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
