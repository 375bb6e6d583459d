"""Describe an API without a document by one tool per HTTP method."""

from __future__ import annotations

from toolpost.sources.openapi.models import ApiDescription, ApiOperation, ApiResponse, Parameter, RequestBody

_GENERIC_METHODS = {
    "GET": "Read something of this API by its path.",
    "POST": "Send something to a path of this API.",
    "PUT": "Put something at a path of this API.",
    "PATCH": "Change something at a path of this API.",
    "DELETE": "Delete what is at a path of this API.",
}
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


def generic_api(base_url: str) -> ApiDescription:
    """Build an API with one generic tool per HTTP method."""
    address = base_url.partition("?")[0].partition("#")[0].rstrip("/")
    operations = tuple(_request(method, text, address) for method, text in _GENERIC_METHODS.items())
    problem = "no document was found there or in the usual places; its tools send bare requests"
    return ApiDescription(title=address, version="", operations=operations, problems=(f"{address}: {problem}",))


def _request(method: str, text: str, address: str) -> ApiOperation:
    path = Parameter(
        name="path",
        location="path",
        argument="path",
        schema={"type": "string", "minLength": 1, "description": "The path below the base URL, such as users/7"},
        required=True,
        style="simple",
        explode=False,
        allow_reserved=True,
    )
    query = Parameter(
        name="query",
        location="query",
        argument="query",
        schema={"type": "object", "description": "Query parameters by name"},
    )
    content = (
        RequestBody(argument="body", content_type="application/json", schema=True) if method in _WITH_BODY else None
    )
    return ApiOperation(
        tool_name=f"request_{method.lower()}",
        method=method,
        path="/{+path}",
        servers=(address,),
        summary=text,
        parameters=(path, query),
        body=content,
        responses=(ApiResponse(status="default"),),
    )
