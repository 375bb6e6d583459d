"""The OpenAPI document of the REST interface, made of the declared operations."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from toolpost import __version__
from toolpost.gateway.rest.schemas import COMPONENTS, ref

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolpost.gateway.rest.operations import Operation

_ALWAYS = (400, 401, 403, 429)
_PROBLEM = {"content": {"application/problem+json": {"schema": ref("Problem")}}}


def openapi_document(operations: Iterable[Operation], *, server: str) -> dict[str, Any]:
    """Return the document that describes the operations."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(f"/api/v1{operation.path}", {})[operation.method.lower()] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Toolpost",
            "version": __version__,
            "description": "Tools of every kind behind one safe call: list, call, answer, listen.",
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
        described["description"] = f"For callers with the scope {' or '.join(operation.scope)}."
    if operation.takes is not None:
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": operation.takes}}}
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
    for status, answer in operation.answers.items():
        shown: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if answer is not None:
            kinds = answer if any("/" in kind for kind in answer) else {"application/json": answer}
            shown["content"] = {kind: {"schema": schema} for kind, schema in kinds.items()}
        responses[str(status)] = shown
    bodies = (408, 413, 415, 422) if operation.takes is not None or operation.raw_body else ()
    for status in sorted({*_ALWAYS, *bodies, *operation.problems}):
        responses.setdefault(str(status), {"description": HTTPStatus(status).phrase, **_PROBLEM})
    return responses
