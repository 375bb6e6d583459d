"""Operations on metrics: series over time, and the tools, sources, users or errors with the most calls."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from toolpost.contracts.metrics import HOUR_S, MINUTE_S, MetricRow, percentile
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.schema_builders import ref

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from starlette.responses import Response

    from toolpost.contracts.storage import Store

OPERATIONS = Operations("insight")

_METRICS: dict[str, Callable[[MetricRow], float | None]] = {
    "calls": lambda row: row.calls,
    "failed": lambda row: row.failed,
    "asked": lambda row: row.asked,
    "answered": lambda row: row.answered,
    "denied": lambda row: row.denied,
    "expired": lambda row: row.expired,
    "p50": lambda row: percentile(row.durations, 0.5),
    "p95": lambda row: percentile(row.durations, 0.95),
    "p99": lambda row: percentile(row.durations, 0.99),
    "answer_p50": lambda row: percentile(row.answer_times, 0.5),
    "answer_p90": lambda row: percentile(row.answer_times, 0.9),
}
_DIMENSIONS = ("none", "tool", "source", "user", "code", "failure")
_NOTHING = MetricRow(tenant="", dimension="none", key="", width=0, begin=0)
_MINUTES_S = 7 * 24 * 3600  # minutes before that are only counted in their hour
_MOST_STEPS = 1500
_DEFAULT_WINDOW_S = 3600
_TIME = {"type": "number", "minimum": 0, "description": "Seconds since 1970"}
_WINDOW = {"since": _TIME, "until": _TIME}


@OPERATIONS.declare(
    "GET",
    "/insight/series",
    scope=("answer", "admin"),
    query={
        **_WINDOW,
        "metric": {
            "type": "string",
            "default": "calls,failed",
            "description": f"Metrics, separated by commas: {', '.join(_METRICS)}",
        },
        "by": {
            "type": "string",
            "enum": list(_DIMENSIONS),
            "default": "none",
            "description": "One series per value of this property",
        },
        "key": {"type": "string", "description": "Only this value of the property"},
        "step": {
            "type": "integer",
            "minimum": MINUTE_S,
            "description": "Seconds per value, rounded up to minutes or hours",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 100,
            "default": 20,
            "description": "Keys with most calls",
        },
    },
    answers={200: ref("Series")},
)
async def metric_series(request: RestRequest) -> Response:
    """Show metrics over time, from the event log."""
    since, until = _window(request)
    metrics = _metric_names(request.query["metric"])
    step = _step(request.query.get("step") or max(MINUTE_S, (until - since) / 60), since)
    begin = int(since // step) * step
    steps = int((until - begin - 1) // step) + 1
    if steps > _MOST_STEPS:
        raise Problem(400, "too_many_steps", f"{steps} steps are more than {_MOST_STEPS}; use a longer step")
    rows = await _read(request, since=begin, until=until, width=MINUTE_S if step < HOUR_S else HOUR_S)
    totals = _sum_by_key(rows)
    series: list[dict[str, Any]] = []
    for key in _largest(totals, request.query["limit"]):
        at_step: dict[int, MetricRow] = {}
        for row in totals[key]:
            place = (row.begin - begin) // step
            at_step[place] = at_step[place].merge(row) if place in at_step else row
        total = _sum(totals[key])
        series += [
            {
                "key": key,
                "metric": name,
                "total": _value(name, total),
                "values": [_value(name, at_step.get(place)) for place in range(steps)],
            }
            for name in metrics
        ]
    first = await request.box.store.metrics.begin(tenant=request.tenant)
    return JsonResponse({"step": step, "begin": begin, "data_since": first, "series": series})


@OPERATIONS.declare(
    "GET",
    "/insight/top",
    scope=("answer", "admin"),
    query={
        **_WINDOW,
        "by": {"type": "string", "enum": list(_DIMENSIONS[1:]), "default": "tool"},
        "metric": {
            "type": "string",
            "enum": ["calls", "failed", "p95"],
            "default": "calls",
            "description": "The order of the list",
        },
        "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 20},
    },
    answers={200: ref("Top")},
)
async def metric_top(request: RestRequest) -> Response:
    """List the tools, sources, users or errors with the highest value of a metric."""
    since, until = _window(request)
    width = MINUTE_S if until - since <= 24 * HOUR_S and since >= time.time() - _MINUTES_S else HOUR_S
    begin = int(since // width) * width
    rows = await _read(request, since=begin, until=until, width=width)
    totals = [(key, _sum(of)) for key, of in _sum_by_key(rows).items()]
    value = _METRICS[request.query["metric"]]
    ordered = sorted(totals, key=lambda one: (-(value(one[1]) or 0), one[0]))
    items = [{"key": key, "last_at": row.last_at, **_values(row)} for key, row in ordered]
    total = len(items)
    return JsonResponse({"begin": begin, "until": until, "total": total, "items": items[: request.query["limit"]]})


async def metrics_by_tool(store: Store, *, tenant: str, since: float) -> dict[str, MetricRow]:
    """Return the counts of each tool's calls since the hour of `since`."""
    begin = int(since // HOUR_S) * HOUR_S
    rows = await store.metrics.read("tool", tenant=tenant, width=HOUR_S, since=begin, until=time.time())
    return {key: _sum(of) for key, of in _sum_by_key(rows).items()}


def duration_percentiles(row: MetricRow) -> dict[str, float | None]:
    """Return the percentiles of the durations of calls."""
    return {name: _value(name, row) for name in ("p50", "p95", "p99")}


def _window(request: RestRequest) -> tuple[float, float]:
    until = request.query.get("until") or time.time()
    since = request.query.get("since")
    since = until - _DEFAULT_WINDOW_S if since is None else since
    if since >= until:
        raise Problem(400, "invalid_parameter", "the parameter 'since' must be before 'until'")
    return since, until


def _metric_names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in _METRICS:
            raise Problem(400, "invalid_parameter", f"unknown metric {name!r}; known are {', '.join(_METRICS)}")
    return names


def _step(seconds: float, since: float) -> int:
    """Round a step up to minutes, or to hours if it is long or the minutes are not stored any more."""
    width = MINUTE_S if seconds < HOUR_S and since >= time.time() - _MINUTES_S else HOUR_S
    return -int(-seconds // width) * width


async def _read(request: RestRequest, *, since: float, until: float, width: int) -> list[MetricRow]:
    return await request.box.store.metrics.read(
        request.query["by"],
        tenant=request.tenant,
        width=width,
        since=since,
        until=until,
        key=request.query.get("key"),
    )


def _sum_by_key(rows: Iterable[MetricRow]) -> dict[str, list[MetricRow]]:
    by_key: defaultdict[str, list[MetricRow]] = defaultdict(list)
    for row in rows:
        by_key[row.key].append(row)
    return by_key


def _largest(by_key: dict[str, list[MetricRow]], limit: int) -> list[str]:
    return sorted(by_key, key=lambda key: (-sum(row.calls + row.asked for row in by_key[key]), key))[:limit]


def _sum(rows: Sequence[MetricRow]) -> MetricRow:
    total, *others = rows
    for row in others:
        total = total.merge(row)
    return total


def _values(row: MetricRow) -> dict[str, float | None]:
    return {name: _value(name, row) for name in _METRICS}


def _value(name: str, row: MetricRow | None) -> float | None:
    """Return the value of a metric; without calls, counts are 0 and percentiles None."""
    value = _METRICS[name](_NOTHING if row is None else row)
    return value if value is None or isinstance(value, int) else round(value, 3)
