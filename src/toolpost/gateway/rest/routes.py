"""Routes of the REST interface under `/api/v1`, and of its document."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.routing import Route

from toolpost.gateway.problems import ProblemResponse
from toolpost.gateway.rest import accounts, artifacts, calls, event_stream, pending, sources, tools
from toolpost.gateway.rest.document import openapi_document
from toolpost.gateway.rest.operations import JsonResponse, Operation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from toolpost.gateway.rest.service import RestService

OPERATIONS: tuple[Operation, ...] = (
    *tools.OPERATIONS,
    *calls.OPERATIONS,
    *pending.OPERATIONS,
    *event_stream.OPERATIONS,
    *artifacts.OPERATIONS,
    *accounts.OPERATIONS,
    *sources.OPERATIONS,
)


def rest_routes(service: RestService) -> list[Route]:
    """Return the routes of all operations."""
    by_path: defaultdict[str, dict[str, Operation]] = defaultdict(dict)
    for operation in OPERATIONS:
        by_path[operation.path][operation.method] = operation
    document = JsonResponse(openapi_document(OPERATIONS, server=service.public_url))

    async def show_document(_request: Request) -> Response:
        return document

    routes = [Route(f"/api/v1{path}", _Resource(service, methods)) for path, methods in by_path.items()]
    return [*routes, Route("/openapi.json", show_document)]


class _Resource:
    """ASGI application of one path: it answers every method, those that it does not have with a problem."""

    def __init__(self, service: RestService, methods: Mapping[str, Operation]) -> None:
        self._service = service
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        operation = self._methods.get("GET" if request.method == "HEAD" else request.method)
        if operation is None:
            allowed = {"Allow": ", ".join(self._methods)}
            response: Response = ProblemResponse(405, "method_not_allowed", "this is not done here", headers=allowed)
        else:
            response = await operation(self._service, request)
        await response(scope, receive, send)
