"""Figures of a running gateway in the text format of Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from toolpost.toolbox.box import Toolbox

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MOST_PENDING = 10_000


class Metric(NamedTuple):
    """One figure, with a value for each label; `worker` is the one that counted it, if there are several."""

    name: str
    kind: str
    about: str
    label: str
    values: Mapping[str, float]
    worker: str = ""


async def metrics_of(box: Toolbox, *, listeners: int, worker: str = "") -> list[Metric]:
    """Return the figures of one process: calls by tool, sources, what waits for people, and who listens.

    What waits for people, and how webhooks stand, is the same in all workers, and names none.
    """
    calls, report = box.registry.get_stats().call_stats, box.report
    seconds = {name: one.count * one.avg_duration / 1000 for name, one in calls.items()}
    figures: list[tuple[str, str, str, str, Mapping[str, float]]] = [
        ("tool_calls_total", "counter", "Calls that have ended", "tool", {n: c.count for n, c in calls.items()}),
        ("tool_failures_total", "counter", "Calls that failed", "tool", {n: c.failures for n, c in calls.items()}),
        ("tool_call_seconds_total", "counter", "How long calls took together", "tool", seconds),
        ("source_up", "gauge", "Whether a source is up", "source", {one.name: int(one.ok) for one in report}),
        ("source_tools", "gauge", "Tools of a source", "source", {one.name: one.tools for one in report}),
        ("event_listeners", "gauge", "Clients that listen to events", "", {"": listeners}),
    ]
    waiting = len(await box.store.pending.list(status="open", limit=_MOST_PENDING))
    webhooks = {one["name"]: one for one in await box.webhooks.states()}

    def webhook(name: str, kind: str, about: str, key: str) -> Metric:
        return Metric(name, kind, about, "webhook", {name: one[key] for name, one in webhooks.items()})

    return [
        *(Metric(*figure, worker) for figure in figures),
        Metric("pending_actions", "gauge", "Calls that wait for a person", "", {"": waiting}),
        webhook("webhook_delivered_total", "counter", "Events that a webhook has received", "delivered"),
        webhook("webhook_behind", "gauge", "Events that a webhook has not come to", "behind"),
        webhook("webhook_failures", "gauge", "Failed tries in a row", "failures"),
    ]


def metrics_text(metrics: Iterable[Metric]) -> str:
    """Return figures as text; those of one name stand together, whichever worker they are of."""
    by_name: dict[str, list[Metric]] = {}
    for metric in metrics:
        by_name.setdefault(metric.name, []).append(metric)
    return "".join(line for group in by_name.values() for line in _lines(group))


def _lines(group: Sequence[Metric]) -> Iterable[str]:
    name = f"toolpost_{group[0].name}"
    yield f"# HELP {name} {group[0].about}.\n# TYPE {name} {group[0].kind}\n"
    for metric in group if group[0].worker else group[:1]:
        for value_of, value in metric.values.items():
            labels = [f'{metric.label}="{_escape(value_of)}"'] if metric.label else []
            labels += [f'worker="{metric.worker}"'] if metric.worker else []
            yield f"{name}{{{','.join(labels)}}} {value:g}\n" if labels else f"{name} {value:g}\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
