"""Discovery of protected resources (RFC 9728) and authorization servers (RFC 8414, OpenID).

`Trust` decides which URLs a document may name as endpoints.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from toolpost.auth.oauth.flow import Flow, FlowRequest, host_of, json_object, refusal_error, with_context
from toolpost.contracts.errors import ToolAuthError, ToolError, ToolPermissionError
from toolpost.schema.json_values import is_array
from toolpost.wire.addresses import is_loopback, refusal_reason
from toolpost.wire.network import AllowRule, NetworkPolicy, allow_rules
from toolpost.wire.targets import DEFAULT_PORTS, Target, parse_target

_ANY_HOST = NetworkPolicy()
_MOST = 200
_RESOURCE = "/.well-known/oauth-protected-resource"
_OAUTH = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"
_CODE = "oauth_metadata"


class Trust(Struct, frozen=True, kw_only=True):
    """Validation of URLs in documents by the network policy of the source.

    Only the text of a URL is validated, because a browser may open it; the HTTP client checks its own requests again.
    """

    policy: NetworkPolicy = _ANY_HOST

    def check(self, url: object, *, name: str, documents: tuple[str, ...] = ()) -> str:
        """Return the URL if it is permitted; without documents it is the operator's, who may also use http."""
        if not isinstance(url, str) or not url:
            raise _refusal(name, documents, "it is not a URL")
        try:
            target = parse_target(url)
        except ToolPermissionError as refused:
            raise _refusal(name, documents, str(refused).partition(" is refused: ")[2]) from None
        if "#" in url:
            raise _refusal(name, documents, "it has a fragment")
        rules = allow_rules(self.policy.allow_hosts | self.policy.operator_hosts)
        if documents and not any(_names(rule, target) for rule in rules):
            self._check_document_target(target, name, documents)
        return url

    def _check_document_target(self, target: Target, name: str, documents: tuple[str, ...]) -> None:
        if is_local(target):
            if self.policy.allow_private or all(is_local(parse_target(document)) for document in documents):
                return
            raise _refusal(
                name, documents, "it points to this machine or a private network, but the document is public"
            )
        if target.scheme != "https":
            raise _refusal(name, documents, "it is not https. An operator can allow its host in network.allow_hosts")


def is_local(target: Target) -> bool:
    """Return whether the host is this machine by name, or an address that is not public."""
    if target.address is not None:
        return refusal_reason(target.address) is not None
    return f".{target.ascii_host}".endswith(".localhost")


def is_loopback_url(url: str) -> bool:
    """Return whether a URL is on this machine."""
    target = parse_target(url)
    return is_loopback(str(target.address or target.ascii_host))


def _names(rule: AllowRule, target: Target) -> bool:
    if rule.port not in {None, target.port}:
        return False
    if rule.network is not None:
        return target.address is not None and target.address in rule.network
    return target.ascii_host == rule.name or (rule.name.startswith(".") and target.ascii_host.endswith(rule.name))


def _refusal(name: str, documents: tuple[str, ...], reason: str) -> ToolAuthError:
    where = f" in the document of {host_of(documents[-1])!r}" if documents else ""
    return ToolAuthError(f"{name}{where} is refused: {reason}.", code="oauth_endpoint_refused")


class ResourceMetadata(Struct, frozen=True, kw_only=True):
    """Metadata of a protected server (RFC 9728). Lists are None if the document has none."""

    resource: str
    authorization_servers: tuple[str, ...]
    scopes_supported: tuple[str, ...] | None = None
    dpop_required: bool = False
    documents: tuple[str, ...] = ()


class ServerMetadata(Struct, frozen=True, kw_only=True):
    """Metadata of an authorization server with checked endpoints.

    `issuer_known` is False if an operator configured the endpoints without the issuer. `documents` led to the
    endpoints; empty if an operator configured them.
    """

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    jwks_uri: str | None = None
    code_challenge_methods: tuple[str, ...] = ()
    auth_methods: tuple[str, ...] | None = None
    scopes_supported: tuple[str, ...] | None = None
    dpop_algorithms: tuple[str, ...] = ()
    iss_parameter: bool = False
    client_documents: bool = False
    issuer_known: bool = True
    documents: tuple[str, ...] = ()


def find_resource(server_url: str, *, trust: Trust, metadata_url: str | None = None) -> Flow[ResourceMetadata | None]:
    """Fetch the metadata of the protected server at an operator's URL; return None if it has none.

    `metadata_url` is from the server's challenge; without it, or without a document there, try the well-known URLs.
    """
    if metadata_url is not None:
        trust.check(metadata_url, name="resource_metadata", documents=(server_url,))
        hit = yield from _first((metadata_url,), (server_url,))
        if hit is not None:
            return _resource(hit[1], server_url, _chain((server_url,), metadata_url))
    hit = yield from _first(resource_urls(server_url), ())
    return None if hit is None else _resource(hit[1], server_url, (hit[0],))


def find_server(issuer: str, *, trust: Trust, documents: tuple[str, ...] = ()) -> Flow[ServerMetadata | None]:
    """Fetch the metadata of an issuer, or return None; without `documents`, the issuer is the operator's."""
    trust.check(issuer, name="the issuer", documents=documents)
    if urlsplit(issuer).query:
        raise ToolAuthError(f"The issuer at {host_of(issuer)!r} has a query, which is not permitted.", code=_CODE)
    try:
        hit = yield from _first(server_urls(issuer), documents)
    except ToolError as failed:
        raise with_context(failed, f"Requested the endpoints of the issuer {issuer!r}") from None
    if hit is None:
        return None
    url, document = hit
    if document.get("issuer") != issuer:
        raise ToolAuthError(
            f"The metadata at {host_of(url)!r} names another issuer than {issuer!r}, so it is not used. "
            "The server must name exactly that issuer.",
            code="oauth_issuer_mismatch",
        )
    return _server(document, issuer, trust, _chain(documents, url))


def discover_server(issuer: str, *, trust: Trust, documents: tuple[str, ...] = ()) -> Flow[ServerMetadata]:
    """Fetch the metadata of an issuer that must have it."""
    server = yield from find_server(issuer, trust=trust, documents=documents)
    if server is None:
        raise ToolAuthError(
            f"The authorization server {issuer!r} publishes no metadata (RFC 8414 or OpenID). "
            "Check the issuer, or write its endpoints into the configuration.",
            code=_CODE,
        )
    return server


def legacy_server(server_url: str) -> ServerMetadata:
    """Return the default endpoints of MCP's revision 2025-03-26 for a server without metadata."""
    origin = origin_of(server_url)
    return ServerMetadata(
        issuer=origin,
        token_endpoint=f"{origin}/token",
        authorization_endpoint=f"{origin}/authorize",
        registration_endpoint=f"{origin}/register",
        code_challenge_methods=("S256",),
        auth_methods=("none", "client_secret_basic", "client_secret_post"),
    )


def configured_server(
    *,
    authorization_endpoint: str,
    token_endpoint: str,
    issuer: str | None = None,
    revocation_endpoint: str = "",
    device_endpoint: str = "",
) -> ServerMetadata:
    """Return the metadata of a server with configured endpoints, which is assumed to support PKCE."""
    return ServerMetadata(
        issuer=issuer or origin_of(authorization_endpoint),
        issuer_known=issuer is not None,
        token_endpoint=token_endpoint,
        authorization_endpoint=authorization_endpoint,
        revocation_endpoint=revocation_endpoint or None,
        device_authorization_endpoint=device_endpoint or None,
        code_challenge_methods=("S256",),
    )


def resource_urls(server_url: str) -> tuple[str, ...]:
    """Return the URLs to try for the metadata of a protected server: below its path first, then at the root."""
    origin, path = origin_of(server_url), urlsplit(server_url).path.rstrip("/")
    return tuple(dict.fromkeys((f"{origin}{_RESOURCE}{path}", f"{origin}{_RESOURCE}")))


def server_urls(issuer: str) -> tuple[str, ...]:
    """Return the URLs to try for the metadata of an issuer, in the order of MCP."""
    origin, path = origin_of(issuer), urlsplit(issuer).path.rstrip("/")
    if not path:
        return (f"{origin}{_OAUTH}", f"{origin}{_OPENID}")
    return (f"{origin}{_OAUTH}{path}", f"{origin}{_OPENID}{path}", f"{origin}{path}{_OPENID}")


def resource_of(server_url: str) -> str:
    """Return the resource of a server without metadata (RFC 8707): its URL without query, fragment and empty path."""
    parts = urlsplit(server_url)
    path = "" if parts.path == "/" else parts.path
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{path}"


def origin_of(url: str) -> str:
    """Return scheme and authority of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def covers(resource: str, server_url: str) -> bool:
    """Return whether tokens for a resource are valid for a server: the same origin, and its path or one above it."""
    try:
        wider, narrower = urlsplit(resource), urlsplit(server_url)
        same = _origin(wider) == _origin(narrower)
    except ValueError:
        return False
    above, path = wider.path.rstrip("/"), narrower.path.rstrip("/")
    return same and not wider.fragment and not wider.query and (path == above or path.startswith(f"{above}/"))


def _first(urls: tuple[str, ...], documents: tuple[str, ...]) -> Flow[tuple[str, dict[str, Any]] | None]:
    """Return the first JSON object at one of the URLs; skip other documents, such as HTML pages."""
    for url in urls:
        reply = yield FlowRequest(method="GET", url=url, documents=documents)
        if reply.status == 429 or reply.status >= 500:  # the metadata may exist, so no other URL may replace it
            raise refusal_error(f"The metadata of {host_of(url)!r}", reply)
        document = json_object(reply) if reply.status == 200 else None
        if document is not None:
            return url, document
    return None


def _chain(documents: tuple[str, ...], url: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*documents, url)))


def _resource(document: dict[str, Any], server_url: str, documents: tuple[str, ...]) -> ResourceMetadata:
    resource = document.get("resource")
    if not isinstance(resource, str) or not covers(resource, server_url):
        raise ToolAuthError(
            f"The document of {host_of(server_url)!r} is for another resource, so it is not used. "
            "Its `resource` must be the URL of the server, or a path above it.",
            code="oauth_resource_mismatch",
        )
    servers = _texts(document.get("authorization_servers")) or ()
    if not servers:
        raise ToolAuthError(f"The document of {host_of(server_url)!r} names no authorization server.", code=_CODE)
    return ResourceMetadata(
        resource=resource,
        authorization_servers=servers,
        scopes_supported=_texts(document.get("scopes_supported")),
        dpop_required=document.get("dpop_bound_access_tokens_required") is True,
        documents=documents,
    )


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or DEFAULT_PORTS.get(parts.scheme)


def _server(document: dict[str, Any], issuer: str, trust: Trust, documents: tuple[str, ...]) -> ServerMetadata:
    def endpoint(name: str) -> str | None:
        return None if document.get(name) is None else trust.check(document[name], name=name, documents=documents)

    token_endpoint = endpoint("token_endpoint")
    if token_endpoint is None:
        raise ToolAuthError(f"The metadata of {issuer!r} names no token_endpoint.", code=_CODE)
    return ServerMetadata(
        issuer=issuer,
        token_endpoint=token_endpoint,
        authorization_endpoint=endpoint("authorization_endpoint"),
        registration_endpoint=endpoint("registration_endpoint"),
        revocation_endpoint=endpoint("revocation_endpoint"),
        device_authorization_endpoint=endpoint("device_authorization_endpoint"),
        jwks_uri=endpoint("jwks_uri"),
        code_challenge_methods=_texts(document.get("code_challenge_methods_supported")) or (),
        auth_methods=_texts(document.get("token_endpoint_auth_methods_supported")),
        scopes_supported=_texts(document.get("scopes_supported")),
        dpop_algorithms=_texts(document.get("dpop_signing_alg_values_supported")) or (),
        iss_parameter=document.get("authorization_response_iss_parameter_supported") is True,
        client_documents=document.get("client_id_metadata_document_supported") is True,
        documents=documents,
    )


def _texts(value: object) -> tuple[str, ...] | None:
    """Return the strings of a list, or None if the value is not a list."""
    if not is_array(value):
        return None
    return tuple(dict.fromkeys(text for text in value[:_MOST] if isinstance(text, str) and text))
