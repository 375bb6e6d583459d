"""How an API wants to be told who is calling: its schemes, and which of them an operation needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from toolpost.schema.jsontypes import is_array, is_object
from toolpost.sources.openapi.operation import SecurityNeed, SecurityScheme

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolpost.sources.openapi.references import Library

Needs = tuple[tuple[SecurityNeed, ...], ...]

_SWAGGER_FLOWS = {"application": "clientCredentials", "accessCode": "authorizationCode"}
# The flow that needs nobody's presence first.
_FLOWS = ("clientCredentials", "password", "authorizationCode", "deviceAuthorization", "implicit")


def schemes_of(document: dict[str, Any], library: Library, address: str) -> dict[str, SecurityScheme]:
    """The schemes that a document declares, by name; those that make no sense are left out."""
    schemes: dict[str, SecurityScheme] = {}
    for name, declared in _declared(document):
        target = library.resolved(declared, library.root)
        if target is not None and is_object(target.node):
            scheme = _scheme(name, target.node, address)
            if scheme is not None:
                schemes[name] = scheme
    return schemes


def _declared(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    components = document.get("components")
    for holder, word in ((components, "securitySchemes"), (document, "securityDefinitions")):
        declared = holder.get(word) if is_object(holder) else None
        if is_object(declared):
            yield from declared.items()


def _scheme(name: str, node: dict[str, Any], address: str) -> SecurityScheme | None:
    kind = node.get("type")
    if kind == "basic":
        return SecurityScheme(name=name, type="http", scheme="basic")
    if kind == "apiKey":
        location = node.get("in")
        if location not in ("query", "header", "cookie") or not isinstance(node.get("name"), str):
            return None
        return SecurityScheme(name=name, type="apiKey", location=location, parameter=node["name"])
    if kind == "http":
        return SecurityScheme(name=name, type="http", scheme=str(node.get("scheme", "")).lower())
    if kind == "oauth2":
        flows = _flows(node)
        return SecurityScheme(name=name, type="oauth2", flows=flows, token_url=_token_url(flows, address))
    if kind == "openIdConnect":
        return SecurityScheme(name=name, type="openIdConnect", flows={"openIdConnectUrl": node.get("openIdConnectUrl")})
    return SecurityScheme(name=name, type="mutualTLS") if kind == "mutualTLS" else None


def _flows(node: dict[str, Any]) -> dict[str, Any]:
    """The flows of OpenAPI 3, or the one flow of Swagger 2 in their shape."""
    flows = node.get("flows")
    if is_object(flows):
        return {name: flow for name, flow in flows.items() if is_object(flow)}
    flow = node.get("flow")
    if not isinstance(flow, str):
        return {}
    kept = {word: node[word] for word in ("authorizationUrl", "tokenUrl", "scopes") if word in node}
    return {_SWAGGER_FLOWS.get(flow, flow): kept}


def _token_url(flows: dict[str, Any], address: str) -> str | None:
    for name in _FLOWS:
        url = flows.get(name, {}).get("tokenUrl")
        if isinstance(url, str) and url:
            try:
                return urljoin(address, url)
            except ValueError:
                return None
    return None


def needs_of(declared: Any) -> Needs:
    """The alternatives of a `security` list; `{}` among them is one that needs nothing."""
    if not is_array(declared):
        return ()
    return tuple(
        tuple(SecurityNeed(scheme=name, scopes=_scopes(scopes)) for name, scopes in alternative.items())
        for alternative in declared
        if is_object(alternative)
    )


def _scopes(scopes: Any) -> tuple[str, ...]:
    return tuple(scope for scope in scopes if isinstance(scope, str)) if is_array(scopes) else ()
