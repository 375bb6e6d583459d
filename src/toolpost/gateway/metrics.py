"""Metrics of the gateway in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from toolpost import __version__
from toolpost.catalog.entry import DURATION_BOUNDS_MS
from toolpost.contracts.errors import StoreError
from toolpost.contracts.metrics import MINUTE_S
from toolpost.gateway.storage_health import disk_space, write_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.requests import Request

    from toolpost.catalog.registry import CallStats
    from toolpost.gateway.rest.operations import RestService
    from toolpost.toolbox.box import Toolbox

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS = (*(f"{bound / 1000:g}" for bound in DURATION_BOUNDS_MS), "+Inf")
_RECENT_S = 600
Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """A metric with a value per label; `worker` is the number of the worker that counted it, if there are several.

    The value of a histogram is a list: the counts of its buckets, and the sum of its values.
    """

    name: str
    kind: Kind
    about: str
    label: str
    values: Mapping[str, Any]
    worker: str = ""


async def metrics_text(service: RestService, request: Request) -> str:
    """Return the metrics of all workers."""
    metrics = await collect_metrics(service)
    for others in await service.request_siblings(request):
        metrics += [Metric(*one) for one in others]
    by_name: dict[str, list[Metric]] = {}
    for metric in metrics:
        by_name.setdefault(metric.name, []).append(metric)
    return "".join(line for group in by_name.values() for line in _lines(group))


async def collect_metrics(service: RestService) -> list[Metric]:
    """Return the metrics of this process, and those of the store, which are the same in all workers."""
    worker = "" if service.siblings is None else str(service.siblings.number)
    own = [*_call_metrics(service.box), *_process_metrics(service), *_sign_in_metrics(service.box)]
    return [*(metric._replace(worker=worker) for metric in own), *await _store_metrics(service.box)]


def _call_metrics(box: Toolbox) -> Iterable[Metric]:
    calls = box.registry.get_stats().call_stats
    counts, failures = {n: c.count for n, c in calls.items()}, {n: c.failures for n, c in calls.items()}
    yield Metric("tool_calls_total", "counter", "Ended calls", "tool", counts)
    yield Metric("tool_failures_total", "counter", "Failed calls", "tool", failures)
    durations = {name: _histogram(one) for name, one in calls.items()}
    yield Metric("tool_call_seconds", "histogram", "Durations of ended calls", "tool", durations)


def _histogram(calls: CallStats) -> list[float]:
    return [*calls.buckets, calls.count * calls.avg_duration / 1000]


def _process_metrics(service: RestService) -> Iterable[Metric]:
    box = service.box
    report, health = box.report, box.store.events.health
    yield Metric("build_info", "gauge", "The version of Toolpost", "version", {__version__: 1})
    yield Metric("source_up", "gauge", "Whether a source is up", "source", {one.name: int(one.ok) for one in report})
    yield Metric("source_tools", "gauge", "Tools of a source", "source", {one.name: one.tools for one in report})
    writable = int(not write_problem(box))
    yield Metric("store_writable", "gauge", "Whether calls can be recorded", "", {"": writable})
    yield Metric("store_write_failures_total", "counter", "Failed transactions", "", {"": health.failures})
    yield Metric("events_waiting", "gauge", "Events that are not written yet", "", {"": health.waiting})
    yield Metric("event_listeners", "gauge", "Clients that stream events", "", {"": service.feed.listeners})


def _sign_in_metrics(box: Toolbox) -> Iterable[Metric]:
    counted = box.account_counts().snapshot()
    waits = counted["time_to_resume_s"]
    quantiles = {f"{int(name[1:]) / 100:g}": value for name, value in waits.items() if value is not None}
    resumes = {"": counted["resumes"]}
    yield Metric("oauth_pauses_total", "counter", "Calls that paused for a sign-in", "provider", counted["pauses"])
    yield Metric(
        "oauth_callbacks_total", "counter", "Callbacks of sign-ins by their result", "result", counted["callbacks"]
    )
    yield Metric("oauth_token_hits_total", "counter", "Lookups that found a token", "provider", counted["token_hits"])
    yield Metric(
        "oauth_token_misses_total", "counter", "Lookups that found no token", "provider", counted["token_misses"]
    )
    yield Metric("oauth_resumes_total", "counter", "Calls that resumed after a sign-in", "", resumes)
    yield Metric("oauth_resume_seconds", "gauge", "Seconds until calls resumed after a sign-in", "quantile", quantiles)


async def _store_metrics(box: Toolbox) -> list[Metric]:
    """Return the metrics of the store and its disk; without a store that can be read, those of the disk."""
    space = disk_space(box)
    metrics = (
        []
        if space is None
        else [
            Metric("disk_free_bytes", "gauge", "Free space for the data folder", "", {"": space.free}),
            Metric("disk_total_bytes", "gauge", "Size of the disk with the data folder", "", {"": space.total}),
        ]
    )
    try:
        status = await box.store.status()
        recent = await _recent_calls(box, status.at)
        webhooks = {one["name"]: one for one in await box.webhooks.states()}
    except StoreError:  # `store_writable` tells
        return metrics
    owners = {"alive": 0, "ended": 0}
    for owner in status.owners:
        owners["alive" if owner.is_alive else "ended"] += 1
    runs = {"running": status.running, "paused": status.paused}

    def webhook(name: str, kind: Kind, about: str, key: str) -> Metric:
        return Metric(name, kind, about, "webhook", {name: one[key] for name, one in webhooks.items()})

    waiting: dict[str, int] = {queue.queue: queue.waiting for queue in status.queues}
    working: dict[str, int] = {queue.queue: queue.running for queue in status.queues}
    ages: dict[str, float] = {}
    for one in status.queues:
        ages[one.queue] = 0.0 if one.oldest_at is None else max(0.0, status.at - one.oldest_at)
    return [
        *metrics,
        *recent,
        Metric("queue_depth", "gauge", "Jobs that wait in a queue", "queue", waiting),
        Metric("queue_running", "gauge", "Jobs of a queue that run", "queue", working),
        Metric("queue_oldest_seconds", "gauge", "Age of the oldest waiting job", "queue", ages),
        Metric("pending_actions", "gauge", "Open pending actions", "", {"": status.pending}),
        Metric("pending_oldest_seconds", "gauge", "Age of the oldest open action", "", {"": status.oldest_pending_s}),
        Metric("open_runs", "gauge", "Runs that have not ended, by their status", "status", runs),
        Metric("silent_runs", "gauge", "Running calls without an event for an hour", "", {"": len(status.silent)}),
        Metric("owners", "gauge", "Processes of the store; ended ones left unfinished work", "state", owners),
        Metric("event_lag_seconds", "gauge", "Age of the oldest unprocessed event", "", {"": status.event_lag_s}),
        webhook("webhook_delivered_total", "counter", "Events delivered to a webhook", "delivered"),
        webhook("webhook_behind", "gauge", "Events not yet delivered to a webhook", "behind"),
        webhook("webhook_failures", "gauge", "Consecutive failed attempts", "failures"),
    ]


async def _recent_calls(box: Toolbox, now: float) -> list[Metric]:
    """Return the calls of the last minutes in all processes, also in those without a port."""
    calls, failures = Counter[str](), Counter[str]()
    for row in await box.store.metrics.read("tool", tenant=None, width=MINUTE_S, since=now - _RECENT_S, until=now):
        calls[row.key] += row.calls
        failures[row.key] += row.failed
    return [
        Metric("recent_calls", "gauge", "Calls of all processes that ended within ten minutes", "tool", calls),
        Metric("recent_failures", "gauge", "Calls of all processes that failed within ten minutes", "tool", failures),
    ]


def _lines(group: Sequence[Metric]) -> Iterable[str]:
    name = f"toolpost_{group[0].name}"
    yield f"# HELP {name} {group[0].about}.\n# TYPE {name} {group[0].kind}\n"
    for metric in group if group[0].worker else group[:1]:
        for value_of, value in metric.values.items():
            labels = [f'{metric.label}="{_escape(value_of)}"'] if metric.label else []
            labels += [f'worker="{metric.worker}"'] if metric.worker else []
            if metric.kind == "histogram":
                yield from _histogram_lines(name, labels, value)
            else:
                yield _line(name, labels, value)


def _histogram_lines(name: str, labels: Sequence[str], value: Sequence[float]) -> Iterable[str]:
    *buckets, total = value
    counts = list(accumulate(buckets))
    for bound, count in zip(_BOUNDS, counts, strict=True):
        yield _line(f"{name}_bucket", [*labels, f'le="{bound}"'], count)
    yield _line(f"{name}_sum", labels, total)
    yield _line(f"{name}_count", labels, counts[-1])


def _line(name: str, labels: Sequence[str], value: float) -> str:
    # Integers in full: `disk_free_bytes` and counters exceed the six digits of a float.
    text = str(value) if isinstance(value, int) else f"{value:.9g}"
    return f"{name}{{{','.join(labels)}}} {text}\n" if labels else f"{name} {text}\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
