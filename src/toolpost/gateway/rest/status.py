"""The operation that shows the status of the gateway to operators and monitoring systems."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from toolpost import __version__
from toolpost.contracts.errors import StoreError
from toolpost.contracts.principal import LOCAL_TENANT
from toolpost.contracts.store_status import StoreStatus, status_problems
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.schema_builders import ref
from toolpost.gateway.source_changes import FROM_SIBLING
from toolpost.gateway.storage_health import LOW_SPACE, disk_space, write_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.responses import Response

    from toolpost.toolbox.box import Toolbox

OPERATIONS = Operations("about")
_LONG_LAG_S = 60.0


@OPERATIONS.declare("GET", "/status", scope=("observe", "admin"), answers={200: ref("Status")})
async def show_status(request: RestRequest) -> Response:
    """Show the status of the gateway: sources, processes, queues, pending actions, event lag and disk."""
    box, service = request.box, request.service
    if not request.caller.sees_gateway:
        detail = f"the status is of all tenants: it needs the operator, `observe`, or the tenant {LOCAL_TENANT!r}"
        raise Problem(403, "operator_required", detail)
    own = _worker_status(box)
    if request.raw.scope.get(FROM_SIBLING):
        return JsonResponse(own)
    for other in await service.request_siblings(request.raw):
        own = _merge(own, other)
    try:
        stored, reason = await box.store.status(), write_problem(box)
        webhooks = await box.webhooks.states()
    except StoreError as error:
        stored, reason, webhooks = None, write_problem(box) or box.redactor.text(error.message), []
    space = disk_space(box)
    events = {"name": "events", "waiting": own["events_waiting"], "running": 0, "oldest_s": None}
    queues = [events, *({**events, "name": f"webhook {one['name']}", "waiting": one["behind"]} for one in webhooks)]
    problems = list(_problems(box, own, stored, reason))
    state = "stopping" if service.is_stopping else "unavailable" if reason else "degraded" if problems else "ready"
    counts = (stored or StoreStatus(at=time.time())).to_dict()
    return JsonResponse(
        {
            "status": state,
            "problems": problems,
            "version": __version__,
            "at": time.time(),
            "started_at": service.started_at,
            "workers": 1 if service.siblings is None else service.siblings.workers,
            "store": {
                "writable": not reason,
                "reason": reason or None,
                "write_failures": own["write_failures"],
                "event_lag_s": None if stored is None else stored.event_lag_s,
            },
            "disk": None if space is None else {"free_bytes": space.free, "total_bytes": space.total},
            "sources": own["sources"],
            **counts,
            "queues": [*counts["queues"], *queues],
        }
    )


def _worker_status(box: Toolbox) -> dict[str, Any]:
    """Return the part of the status that each worker has of its own."""
    health = box.store.events.health
    sources = [
        {
            "name": one.name,
            "transport": one.transport,
            "state": one.state,
            "tools": one.tools,
            "error": one.error or None,
        }
        for one in box.report
    ]
    return {"sources": sources, "events_waiting": health.waiting, "write_failures": health.failures}


def _merge(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Add the status of another worker: a source that is down in one of them is shown as down."""
    down = {source["name"]: source for source in other["sources"] if source["state"] == "down"}
    sources = [down.get(source["name"], source) for source in one["sources"]]
    counts = {name: one[name] + other[name] for name in ("events_waiting", "write_failures")}
    return {"sources": sources, **counts}


def _problems(box: Toolbox, own: dict[str, Any], stored: StoreStatus | None, reason: str) -> Iterator[str]:
    if reason:
        yield f"calls cannot be recorded: {reason}"
    space = disk_space(box)
    if space is not None and space.free < LOW_SPACE and not reason:
        yield f"only {space.free // 1_000_000} MB of the disk with the data folder are free"
    for source in own["sources"]:
        if source["state"] == "down":
            yield f"source {source['name']!r} is down: {source['error'] or 'no reason is known'}"
    yield from box.webhooks.problems
    if stored is None:
        return
    if stored.event_lag_s > _LONG_LAG_S:
        yield f"events of the last {stored.event_lag_s:.0f} s are not processed: readers of the log are behind"
    yield from status_problems(stored)
