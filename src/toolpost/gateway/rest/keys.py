"""Operations on the keys of callers: list, create and revoke those of the caller's tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from toolpost.contracts.callers import SCOPES
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.gateway.caller_keys import create_caller_key, revoke_caller_key
from toolpost.gateway.key_uses import last_uses
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.schema_builders import record, ref

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from toolpost.contracts.callers import CallerKey

OPERATIONS = Operations("keys")
_NEW_KEY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": r"^[^\x00-\x1f\x7f]+$"},
        "for": {
            "type": "string",
            "minLength": 1,
            "maxLength": 400,
            "description": "The user that its requests run as; by default `name`",
        },
        "scopes": {
            "type": "array",
            "minItems": 1,
            "uniqueItems": True,
            "items": {"type": "string", "enum": list(SCOPES)},
            "description": "`observe` is alone; `call` is alone, unless the key is for a person",
        },
        "expires_in_s": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 3_153_600_000},
        "interactive": {
            "type": "boolean",
            "default": False,
            "description": "For an MCP client of a person, who answers questions of tools there",
        },
        "person": {"type": "boolean", "default": False, "description": "The key only opens console sessions"},
    },
    "required": ["name", "scopes"],
    "additionalProperties": False,
}


@OPERATIONS.declare("GET", "/keys", scope=("admin",), answers={200: ref("Keys")})
async def list_keys(request: RestRequest) -> Response:
    """List the keys of the tenant."""
    used = await _last_uses(request)
    keys = await request.box.store.caller_keys.list(tenant=request.tenant)
    return JsonResponse({"items": [_to_dict(key, used.get(key.id)) for key in keys]})


@OPERATIONS.declare(
    "POST",
    "/keys",
    scope=("admin",),
    takes=_NEW_KEY,
    answers={201: record({"key": ref("Key"), "token": {"type": "string", "description": "It is not shown again"}})},
)
async def create_key(request: RestRequest) -> Response:
    """Create a key of the tenant and return its bearer once."""
    _check_person(request)
    body = request.body
    user = _user_of(request, body.get("for") or body["name"])
    _check_operator(request, user, body["scopes"])
    _check_own(request, user, body["scopes"], person=body.get("person", False))
    key, token = await create_caller_key(
        request.box,
        body["name"],
        user,
        body["scopes"],
        by=request.user,
        expires_in_s=body.get("expires_in_s"),
        interactive=body.get("interactive", False),
        person=body.get("person", False),
    )
    return JsonResponse({"key": _to_dict(key, None), "token": token}, 201)


@OPERATIONS.declare("DELETE", "/keys/{key_id}", scope=("admin",), answers={204: None}, problems=(404,))
async def delete_key(request: RestRequest) -> Response:
    """Revoke a key of the tenant and end its console sessions."""
    _check_person(request)
    key_id = request.path["key_id"]
    if not await revoke_caller_key(request.box, key_id, by=request.user):
        raise Problem(404, "key_not_found", f"there is no key {key_id!r} in your tenant; GET /api/v1/keys lists them")
    return Response(status_code=204)


def _check_person(request: RestRequest) -> None:
    """Raise Problem for a bearer that an agent may have: with a new key, it could approve its own calls."""
    if not request.caller.person:
        detail = "an agent may have this bearer, so it cannot change keys; use a console session or an `admin` key"
        raise Problem(403, "not_a_person", detail)


def _check_operator(request: RestRequest, user: Principal, scopes: Collection[str]) -> None:
    """Raise Problem for a key with the operator's rights if the caller does not have them."""
    if "admin" in scopes and user.tenant == LOCAL_TENANT and not request.caller.is_operator:
        detail = (
            f"an `admin` key of the tenant {LOCAL_TENANT!r} is the operator's: create it with the operator's token or "
            "such a key, or with `toolpost keys create` on the gateway's machine"
        )
        raise Problem(403, "operator_required", detail)
    if "observe" in scopes and not request.caller.sees_gateway:
        detail = "a key with `observe` reads metrics of all tenants, so the operator creates it: `toolpost keys create`"
        raise Problem(403, "operator_required", detail)


def _check_own(request: RestRequest, user: Principal, scopes: Collection[str], *, person: bool) -> None:
    """Raise Problem for a key that signs in as another person, who could then approve the creator's own calls."""
    signs_in = person or any(scope in ("answer", "admin") for scope in scopes)
    if signs_in and user != request.caller.principal and not request.caller.is_operator:
        detail = (
            f"this key would sign in as {user}, and you could approve your own calls with it: you can create such a "
            "key for yourself only. The operator creates one for another person with `toolpost keys create`"
        )
        raise Problem(403, "key_of_another_person", detail)


def _user_of(request: RestRequest, name: str) -> Principal:
    try:
        principal = Principal.parse(name if ":" in name else f"{request.tenant}:{name}")
    except ValueError as error:
        raise Problem(422, "invalid_body", f"the body is invalid: $.for: {error}") from None
    if principal.tenant != request.tenant:
        detail = f"the key would be of the tenant {principal.tenant!r}; you can create keys of {request.tenant!r} only"
        raise Problem(403, "other_tenant", detail)
    return principal


async def _last_uses(request: RestRequest) -> Mapping[str, float]:
    """Return when each key was last used, in any worker and in earlier runs of the gateway."""
    used = request.service.key_uses.current()
    for other in await request.service.request_siblings(request.raw):
        for key in other["items"]:
            used[key["id"]] = max(used.get(key["id"], 0.0), key["last_used_at"] or 0.0)
    return await last_uses(request.box.store, used)


def _to_dict(key: CallerKey, used_at: float | None) -> dict[str, Any]:
    return {**key.to_dict(), "last_used_at": used_at}
