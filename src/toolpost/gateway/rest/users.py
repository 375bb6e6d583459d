"""Operations that list users and tenants: all of them for the operator, and those of their tenant for admins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.contracts.users import UserSummary, sum_tenants
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.schema_builders import array, record, ref

if TYPE_CHECKING:
    from starlette.responses import Response

OPERATIONS = Operations("users")
_TENANT = {
    "type": "string",
    "minLength": 1,
    "maxLength": 200,
    "description": "Another tenant, or `*` for all; only for the operator",
}
_ALL = "*"


@OPERATIONS.declare(
    "GET",
    "/users",
    scope=("admin",),
    query={"tenant": _TENANT},
    answers={200: record({"items": array(ref("User"))})},
)
async def list_users(request: RestRequest) -> Response:
    """List the users of the tenant, with their last runs, keys, accounts and pending actions."""
    users = await _users(request, request.query.get("tenant", request.tenant))
    return JsonResponse({"items": [user.to_dict() for user in users]})


@OPERATIONS.declare("GET", "/tenants", scope=("admin",), answers={200: record({"items": array(ref("Tenant"))})})
async def list_tenants(request: RestRequest) -> Response:
    """List the tenants with the sums of their users; the operator sees all, others their own."""
    users = await _users(request, _ALL if request.caller.is_operator else request.tenant)
    return JsonResponse({"items": [tenant.to_dict() for tenant in sum_tenants(users)]})


async def _users(request: RestRequest, tenant: str) -> list[UserSummary]:
    if tenant != request.tenant and not request.caller.is_operator:
        detail = "users of other tenants are shown to the operator only: omit `tenant`, or use an operator's credential"
        raise Problem(403, "operator_required", detail)
    return await request.box.store.users(tenant=None if tenant == _ALL else tenant)
