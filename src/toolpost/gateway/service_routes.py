"""Service routes: health and readiness checks, Prometheus metrics, and well-known documents."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from toolpost.contracts.callers import SCOPES
from toolpost.gateway.access import CALLER, METADATA, insufficient_scope
from toolpost.gateway.problems import ProblemResponse
from toolpost.gateway.source_changes import FROM_SIBLING, SOURCE_CHANGES
from toolpost.sources.utcp.export import export_manual, http_route, serialize_manual

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.requests import Request

    from toolpost.contracts.callers import Caller
    from toolpost.gateway.rest.operations import RestService
    from toolpost.toolbox.box import Toolbox

_LEAST_SPACE = 64 * 1024  # bytes; a transaction writes a few pages
_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def service_routes(service: RestService) -> list[Route]:
    """Return the routes; `/healthz`, `/readyz` and the resource metadata need no authentication."""
    box = service.box

    async def healthz(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    async def resource_metadata(_request: Request) -> JSONResponse:
        """Return the issuer of tokens for `/mcp` (RFC 9728)."""
        oidc = box.settings.server.oidc
        if oidc is None:
            return ProblemResponse(404, "no_issuer", "no issuer is configured; callers use keys")
        return JSONResponse(
            {
                "resource": f"{service.public_url}/mcp",
                "authorization_servers": [oidc.issuer],
                "scopes_supported": list(SCOPES),
                "bearer_methods_supported": ["header"],
                "resource_name": "Toolpost",
            }
        )

    async def readyz(_request: Request) -> Response:
        """Return whether calls are accepted: the store works, and the gateway is not shutting down."""
        if service.is_stopping:
            return ProblemResponse(503, "stopping", "the gateway is shutting down")
        if reason := _write_problem(box):
            return ProblemResponse(503, "store_unavailable", f"calls cannot be recorded: {reason}")
        await box.store.caller_keys.find("")
        return JSONResponse({"status": "ready", "sources": dict(Counter(state.state for state in box.report))})

    async def metrics(request: Request) -> Response:
        caller: Caller = request.scope[CALLER]
        if not caller.scopes & {"admin", "answer"}:
            return insufficient_scope("answer", "admin").response()
        return await _show_metrics(service, request)

    async def utcp_manual(request: Request) -> Response:
        """Return the catalog as a UTCP manual with REST call templates."""
        route = http_route(f"{service.public_url}/api/v1/tools", headers={"Authorization": "Bearer ${TOOLPOST_TOKEN}"})
        specs = [entry.spec for entry in service.tools_for(request.scope[CALLER]).entries()]
        manual = await asyncio.to_thread(export_manual, specs, route)
        return Response(serialize_manual(manual), media_type="application/json")

    return [
        Route("/healthz", endpoint=healthz),
        Route("/readyz", endpoint=readyz),
        Route("/metrics", endpoint=metrics),
        Route(SOURCE_CHANGES, endpoint=partial(_show_source_changes, service)),
        Route("/.well-known/utcp", endpoint=utcp_manual),
        Route(METADATA, endpoint=resource_metadata),
        Route(f"{METADATA}/mcp", endpoint=resource_metadata),
    ]


def _write_problem(box: Toolbox) -> str:
    """Return why the data folder is not writable, without its path; empty if it is writable."""
    folder = box.settings.data_dir
    if reason := box.store.events.health.reason:
        return reason
    return "the disk is full" if folder is not None and shutil.disk_usage(folder).free < _LEAST_SPACE else ""


async def _show_source_changes(service: RestService, request: Request) -> Response:
    """Return the changes of sources since the gateway started, to a restarted worker."""
    if not request.scope.get(FROM_SIBLING):
        return ProblemResponse(404, "not_found", "unknown path; /openapi.json lists the operations")
    return JSONResponse(asdict(service.changed_sources))


async def _show_metrics(service: RestService, request: Request) -> Response:
    """Return the metrics of all workers as text; to a sibling, those of this worker as JSON."""
    worker = "" if service.siblings is None else str(service.siblings.number)
    metrics = await _metrics_of(service.box, listeners=service.feed.listeners, worker=worker)
    if request.scope.get(FROM_SIBLING):
        return JSONResponse(metrics)
    for others in await service.request_siblings(request):
        metrics += [Metric(*one) for one in others]
    return PlainTextResponse(_prometheus_text(metrics), media_type=_MEDIA_TYPE)


class Metric(NamedTuple):
    """A metric with a value per label; `worker` is the number of the worker that counted it, if there are several."""

    name: str
    kind: str
    about: str
    label: str
    values: Mapping[str, float]
    worker: str = ""


async def _metrics_of(box: Toolbox, *, listeners: int, worker: str = "") -> list[Metric]:
    """Return the metrics of one process: calls by tool, sources, pending actions, webhooks and listeners.

    Pending actions and webhooks are the same in all workers, so these metrics name no worker.
    """
    calls, report, health = box.registry.get_stats().call_stats, box.report, box.store.events.health
    seconds = {name: one.count * one.avg_duration / 1000 for name, one in calls.items()}
    figures: list[tuple[str, str, str, str, Mapping[str, float]]] = [
        ("tool_calls_total", "counter", "Ended calls", "tool", {n: c.count for n, c in calls.items()}),
        ("tool_failures_total", "counter", "Failed calls", "tool", {n: c.failures for n, c in calls.items()}),
        ("tool_call_seconds_total", "counter", "Total duration of calls", "tool", seconds),
        ("source_up", "gauge", "Whether a source is up", "source", {one.name: int(one.ok) for one in report}),
        ("source_tools", "gauge", "Tools of a source", "source", {one.name: one.tools for one in report}),
        ("store_writable", "gauge", "Whether calls can be recorded", "", {"": int(not _write_problem(box))}),
        ("store_write_failures_total", "counter", "Failed transactions", "", {"": health.failures}),
        ("events_waiting", "gauge", "Events that are not written yet", "", {"": health.waiting}),
        ("event_listeners", "gauge", "Clients that stream events", "", {"": listeners}),
    ]
    figures += _sign_in_figures(box)
    waiting = await box.store.pending.count_open()
    webhooks = {one["name"]: one for one in await box.webhooks.states()}

    def webhook(name: str, kind: str, about: str, key: str) -> Metric:
        return Metric(name, kind, about, "webhook", {name: one[key] for name, one in webhooks.items()})

    return [
        *(Metric(*figure, worker) for figure in figures),
        Metric("pending_actions", "gauge", "Open pending actions", "", {"": waiting}),
        webhook("webhook_delivered_total", "counter", "Events delivered to a webhook", "delivered"),
        webhook("webhook_behind", "gauge", "Events not yet delivered to a webhook", "behind"),
        webhook("webhook_failures", "gauge", "Consecutive failed attempts", "failures"),
    ]


def _sign_in_figures(box: Toolbox) -> list[tuple[str, str, str, str, Mapping[str, float]]]:
    counted = box.account_counts().snapshot()
    waits = counted["time_to_resume_s"]
    quantiles = {f"{int(name[1:]) / 100:g}": value for name, value in waits.items() if value is not None}
    return [
        ("oauth_pauses_total", "counter", "Calls that paused for a sign-in", "provider", counted["pauses"]),
        ("oauth_callbacks_total", "counter", "Callbacks of sign-ins by their result", "result", counted["callbacks"]),
        ("oauth_token_hits_total", "counter", "Lookups that found a token", "provider", counted["token_hits"]),
        ("oauth_token_misses_total", "counter", "Lookups that found no token", "provider", counted["token_misses"]),
        ("oauth_resumes_total", "counter", "Calls that resumed after a sign-in", "", {"": counted["resumes"]}),
        ("oauth_resume_seconds", "gauge", "Seconds until calls resumed after a sign-in", "quantile", quantiles),
    ]


def _prometheus_text(metrics: Iterable[Metric]) -> str:
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
