"""Figures of a running gateway in the text format of Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from toolpost.toolbox.box import Toolbox

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MOST_PENDING = 10_000


async def metrics_text(box: Toolbox, *, listeners: int) -> str:
    """Return the figures: calls by tool, sources, what waits for people, and who listens."""
    calls = box.registry.get_stats().call_stats
    webhooks = {one["name"]: one for one in await box.webhooks.states()}
    waiting = len(await box.store.pending.list(status="open", limit=_MOST_PENDING))
    return "".join(
        [
            _metric(
                "tool_calls_total", "counter", "Calls that have ended", "tool", {n: c.count for n, c in calls.items()}
            ),
            _metric(
                "tool_failures_total", "counter", "Calls that failed", "tool", {n: c.failures for n, c in calls.items()}
            ),
            _metric(
                "tool_call_seconds_total",
                "counter",
                "How long calls took together",
                "tool",
                {name: one.count * one.avg_duration / 1000 for name, one in calls.items()},
            ),
            _metric(
                "source_up", "gauge", "Whether a source is up", "source", {one.name: int(one.ok) for one in box.report}
            ),
            _metric(
                "source_tools", "gauge", "Tools of a source", "source", {one.name: one.tools for one in box.report}
            ),
            _metric(
                "webhook_delivered_total",
                "counter",
                "Events that a webhook has received",
                "webhook",
                {name: one["delivered"] for name, one in webhooks.items()},
            ),
            _metric(
                "webhook_behind",
                "gauge",
                "Events that a webhook has not come to",
                "webhook",
                {name: one["behind"] for name, one in webhooks.items()},
            ),
            _metric(
                "webhook_failures",
                "gauge",
                "Failed tries in a row",
                "webhook",
                {name: one["failures"] for name, one in webhooks.items()},
            ),
            _metric("pending_actions", "gauge", "Calls that wait for a person", "", {"": waiting}),
            _metric("event_listeners", "gauge", "Clients that listen to events", "", {"": listeners}),
        ]
    )


def _metric(name: str, kind: str, about: str, label: str, values: Mapping[str, float]) -> str:
    return "".join(_lines(f"toolpost_{name}", kind, about, label, values))


def _lines(name: str, kind: str, about: str, label: str, values: Mapping[str, float]) -> Iterable[str]:
    yield f"# HELP {name} {about}.\n# TYPE {name} {kind}\n"
    for value_of, value in values.items():
        labels = f'{{{label}="{_escape(value_of)}"}}' if label else ""
        yield f"{name}{labels} {value:g}\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
