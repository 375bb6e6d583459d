"""Routes of the REST interface under `/api/v1`, and the OpenAPI document of its operations."""

from __future__ import annotations

import re
from collections import defaultdict
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from toolpost import __version__
from toolpost.gateway.rest import (
    about,
    accounts,
    apps,
    artifacts,
    audit,
    calls,
    downloads,
    event_stream,
    insight,
    keys,
    lock,
    new_sources,
    pending,
    policy,
    runs,
    sessions,
    sources,
    status,
    tools,
    users,
)
from toolpost.gateway.rest.components import COMPONENTS
from toolpost.gateway.rest.compression import compress
from toolpost.gateway.rest.operations import JsonResponse, Operation, Resource
from toolpost.gateway.rest.schema_builders import ref

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from toolpost.gateway.rest.operations import RestService

OPERATIONS: tuple[Operation, ...] = (
    *tools.OPERATIONS,
    *apps.OPERATIONS,
    *calls.OPERATIONS,
    *runs.OPERATIONS,
    *pending.OPERATIONS,
    *event_stream.OPERATIONS,
    *audit.OPERATIONS,
    *insight.OPERATIONS,
    *artifacts.OPERATIONS,
    *downloads.OPERATIONS,
    *accounts.OPERATIONS,
    *new_sources.OPERATIONS,
    *sources.OPERATIONS,
    *sessions.OPERATIONS,
    *keys.OPERATIONS,
    *users.OPERATIONS,
    *lock.OPERATIONS,
    *policy.OPERATIONS,
    *about.OPERATIONS,
    *status.OPERATIONS,
)
_ALWAYS = (400, 401, 403, 429)
_PROBLEM = {"content": {"application/problem+json": {"schema": ref("Problem")}}}


def rest_routes(service: RestService) -> list[Route]:
    """Return the routes of all operations and of `/openapi.json`."""
    by_path: defaultdict[str, dict[str, Operation]] = defaultdict(dict)
    for operation in OPERATIONS:
        by_path[operation.path][operation.method] = operation
    document = JsonResponse(openapi_document(OPERATIONS, server=service.public_url))

    async def show_document(request: Request) -> Response:
        return await compress(request, document)

    routes = [Route(f"/api/v1{path}", Resource(service, methods)) for path, methods in by_path.items()]
    return [*routes, Route("/openapi.json", show_document)]


def openapi_document(operations: Iterable[Operation], *, server: str) -> dict[str, Any]:
    """Return the OpenAPI document of the operations."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(f"/api/v1{operation.path}", {})[operation.method.lower()] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Toolpost",
            "version": __version__,
            "description": "List and call tools, answer pending actions, and follow events.",
        },
        "servers": [{"url": server}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": COMPONENTS,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*_parameters(operation)],
        "responses": _responses(operation),
    }
    if operation.scope:
        who = "For the operator" if operation.operator else "For callers"
        described["description"] = f"{who} with the scope {' or '.join(operation.scope)}."
    if operation.no_caller:
        described |= {"security": [], "description": "Needs no bearer."}
    if operation.takes is not None:
        content = {"application/json": {"schema": operation.takes}}
        described["requestBody"] = {"required": operation.no_body is None, "content": content}
    elif operation.raw_body:
        file = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        described["requestBody"] = {"required": True, "content": file}
    return described


def _parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", operation.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    for place, declared in (("query", operation.query), ("header", operation.headers)):
        for name, schema in declared.items():
            yield {"name": name, "in": place, "required": False, "schema": schema}


def _responses(operation: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for code, answer in operation.answers.items():
        shown: dict[str, Any] = {"description": HTTPStatus(code).phrase}
        if answer is not None:
            kinds = answer if any("/" in kind for kind in answer) else {"application/json": answer}
            shown["content"] = {kind: {"schema": schema} for kind, schema in kinds.items()}
        responses[str(code)] = shown
    bodies = (408, 413, 415, 422) if operation.takes is not None or operation.raw_body else ()
    for code in sorted({*_ALWAYS, *bodies, *operation.problems}):
        responses.setdefault(str(code), {"description": HTTPStatus(code).phrase, **_PROBLEM})
    return responses
