"""Routes beside the interfaces: whether it lives and is ready, figures, and documents at well-known places."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from toolpost.contracts.callers import SCOPES
from toolpost.gateway.access import CALLER, METADATA, insufficient_scope
from toolpost.gateway.metrics import MEDIA_TYPE, Metric, metrics_of, metrics_text
from toolpost.gateway.problems import ProblemResponse
from toolpost.gateway.siblings import FROM_SIBLING, SOURCE_CHANGES
from toolpost.sources.utcp.export import export_manual, http_route, serialize_manual

if TYPE_CHECKING:
    from starlette.requests import Request

    from toolpost.contracts.callers import Caller
    from toolpost.gateway.rest.service import RestService


def service_routes(service: RestService) -> list[Route]:
    """Return the routes; `/healthz`, `/readyz` and the resource's metadata need no caller."""
    box = service.box

    async def healthz(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    async def resource_metadata(_request: Request) -> JSONResponse:
        """Tell clients of whom they get tokens for `/mcp` (RFC 9728)."""
        oidc = box.settings.server.oidc
        if oidc is None:
            return ProblemResponse(404, "no_issuer", "no issuer is configured here; callers use keys")
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
        """Tell whether calls can be taken: the store answers, and the gateway is not stopping."""
        if service.is_stopping:
            return ProblemResponse(503, "stopping", "the gateway is stopping")
        await box.store.caller_keys.find("")
        return JSONResponse({"status": "ready", "sources": dict(Counter(state.state for state in box.report))})

    async def metrics(request: Request) -> Response:
        caller: Caller = request.scope[CALLER]
        if not caller.scopes & {"admin", "answer"}:
            return insufficient_scope("admin").response()
        return await _show_metrics(service, request)

    async def utcp_manual(request: Request) -> Response:
        """Describe the catalog as a UTCP manual, whose tools are called over REST."""
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


async def _show_source_changes(service: RestService, request: Request) -> Response:
    """Tell a worker that was started again how sources were changed since the gateway runs."""
    if not request.scope.get(FROM_SIBLING):
        return ProblemResponse(404, "not_found", "there is nothing here; /openapi.json says what there is")
    return JSONResponse(service.source_changes)


async def _show_metrics(service: RestService, request: Request) -> Response:
    """Return the figures of this worker and the others; to another one as data, its own alone."""
    worker = "" if service.siblings is None else str(service.siblings.number)
    metrics = await metrics_of(service.box, listeners=service.feed.listeners, worker=worker)
    if request.scope.get(FROM_SIBLING):
        return JSONResponse(metrics)
    for others in await service.ask_siblings(request.scope, "GET", request.url.path):
        metrics += [Metric(*one) for one in others]
    return PlainTextResponse(metrics_text(metrics), media_type=MEDIA_TYPE)
