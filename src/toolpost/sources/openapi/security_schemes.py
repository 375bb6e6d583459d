"""Read the security schemes and requirements of a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.openapi import models
from toolpost.sources.openapi.references import DocumentRegistry

_SWAGGER_FLOWS = {"application": "clientCredentials", "accessCode": "authorizationCode"}
# Flows that need no user first.
_FLOWS = ("clientCredentials", "password", "authorizationCode", "deviceAuthorization", "implicit")


def parse_security_schemes(
    document: dict[str, Any], registry: DocumentRegistry, address: str
) -> dict[str, models.SecurityScheme]:
    """Read the security schemes by name; skip invalid ones."""
    schemes: dict[str, models.SecurityScheme] = {}
    for name, declared in _scheme_nodes(document):
        target = registry.resolve(declared, registry.root)
        if target is not None and is_object(target.node):
            scheme = _scheme(name, target.node, address)
            if scheme is not None:
                schemes[name] = scheme
    return schemes


def _scheme_nodes(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    components = document.get("components")
    for holder, word in ((components, "securitySchemes"), (document, "securityDefinitions")):
        declared = holder.get(word) if is_object(holder) else None
        if is_object(declared):
            yield from declared.items()


def _scheme(name: str, node: dict[str, Any], address: str) -> models.SecurityScheme | None:
    kind = node.get("type")
    if kind == "basic":
        return models.SecurityScheme(name=name, type="http", scheme="basic")
    if kind == "apiKey":
        location = node.get("in")
        if location not in ("query", "header", "cookie") or not isinstance(node.get("name"), str):
            return None
        return models.SecurityScheme(name=name, type="apiKey", location=location, parameter=node["name"])
    if kind == "http":
        return models.SecurityScheme(name=name, type="http", scheme=str(node.get("scheme", "")).lower())
    if kind == "oauth2":
        flows = _flows(node)
        return models.SecurityScheme(name=name, type="oauth2", flows=flows, token_url=_token_url(flows, address))
    if kind == "openIdConnect":
        return models.SecurityScheme(
            name=name, type="openIdConnect", flows={"openIdConnectUrl": node.get("openIdConnectUrl")}
        )
    return models.SecurityScheme(name=name, type="mutualTLS") if kind == "mutualTLS" else None


def _flows(node: dict[str, Any]) -> dict[str, Any]:
    """Return the OAuth flows, with the one flow of Swagger 2 converted to OpenAPI 3."""
    flows = node.get("flows")
    if is_object(flows):
        return {name: flow for name, flow in flows.items() if is_object(flow)}
    flow = node.get("flow")
    if not isinstance(flow, str):
        return {}
    definition = {word: node[word] for word in ("authorizationUrl", "tokenUrl", "scopes") if word in node}
    return {_SWAGGER_FLOWS.get(flow, flow): definition}


def _token_url(flows: dict[str, Any], address: str) -> str | None:
    for name in _FLOWS:
        url = flows.get(name, {}).get("tokenUrl")
        if isinstance(url, str) and url:
            try:
                return urljoin(address, url)
            except ValueError:
                return None
    return None


def parse_security(declared: Any) -> tuple[tuple[models.SecurityRequirement, ...], ...]:
    """Parse a `security` list; an empty object in it is an alternative without credentials."""
    if not is_array(declared):
        return ()
    return tuple(
        tuple(
            models.SecurityRequirement(scheme=name, scopes=list_strings(scopes)) for name, scopes in alternative.items()
        )
        for alternative in declared
        if is_object(alternative)
    )


def list_strings(value: Any) -> tuple[str, ...]:
    """Return the strings of a list; none for any other value."""
    return tuple(item for item in value if isinstance(item, str)) if is_array(value) else ()
