"""Service routes: health and readiness checks, metrics, and well-known documents."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from toolpost.contracts.callers import SCOPES
from toolpost.contracts.principal import LOCAL_TENANT
from toolpost.gateway.access import CALLER, METADATA, METRICS, insufficient_scope
from toolpost.gateway.metrics import METRICS_TYPE, collect_metrics, metrics_text
from toolpost.gateway.problems import Problem, ProblemResponse
from toolpost.gateway.source_changes import FROM_SIBLING, SOURCE_CHANGES
from toolpost.gateway.storage_health import write_problem
from toolpost.sources.utcp.export import export_manual, http_route, serialize_manual

if TYPE_CHECKING:
    from starlette.requests import Request

    from toolpost.contracts.callers import Caller
    from toolpost.gateway.rest.operations import RestService

_READ_METRICS = frozenset({"observe", "answer", "admin"})


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
        if reason := write_problem(box):
            return ProblemResponse(503, "store_unavailable", f"calls cannot be recorded: {reason}")
        await box.store.caller_keys.find("")
        return JSONResponse({"status": "ready", "sources": dict(Counter(state.state for state in box.report))})

    async def utcp_manual(request: Request) -> Response:
        """Return the catalog as a UTCP manual with REST call templates."""
        route = http_route(f"{service.public_url}/api/v1/tools", headers={"Authorization": "Bearer ${TOOLPOST_TOKEN}"})
        specs = [entry.spec for entry in service.tools_for(request.scope[CALLER]).entries()]
        manual = await asyncio.to_thread(export_manual, specs, route)
        return Response(serialize_manual(manual), media_type="application/json")

    return [
        Route("/healthz", endpoint=healthz),
        Route("/readyz", endpoint=readyz),
        Route(METRICS, endpoint=partial(_show_metrics, service)),
        Route(SOURCE_CHANGES, endpoint=partial(_show_source_changes, service)),
        Route("/.well-known/utcp", endpoint=utcp_manual),
        Route(METADATA, endpoint=resource_metadata),
        Route(f"{METADATA}/mcp", endpoint=resource_metadata),
    ]


async def _show_source_changes(service: RestService, request: Request) -> Response:
    """Return the changes of sources since the gateway started, to a restarted worker."""
    if not request.scope.get(FROM_SIBLING):
        return ProblemResponse(404, "not_found", "unknown path; /openapi.json lists the operations")
    return JSONResponse(asdict(service.changed_sources))


def _metrics_refusal(caller: Caller) -> Problem | None:
    """Return the problem of a caller who may not see the metrics of all tenants, or None."""
    if not caller.scopes & _READ_METRICS:
        return insufficient_scope("observe", "answer", "admin")
    if caller.sees_gateway:
        return None
    detail = (
        "these metrics are of all tenants, for keys with the scope 'observe', the operator and callers of the tenant "
        f"{LOCAL_TENANT!r}; GET /api/v1/insight/series returns those of your tenant"
    )
    return Problem(403, "operator_required", detail)


async def _show_metrics(service: RestService, request: Request) -> Response:
    """Return the metrics of all workers as text; to a sibling, those of this worker as JSON."""
    if (problem := _metrics_refusal(request.scope[CALLER])) is not None:
        return problem.response()
    if request.scope.get(FROM_SIBLING):
        return JSONResponse(await collect_metrics(service))
    return PlainTextResponse(await metrics_text(service, request), media_type=METRICS_TYPE)
