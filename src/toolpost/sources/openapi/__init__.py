"""REST APIs as a source of tools, from their OpenAPI or Swagger document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.source_kinds import AuthType
from toolpost.schema.secrets import is_secret_variable
from toolpost.sources.base import Detection, ProbeResponse, Transport
from toolpost.sources.openapi.options import HttpOptions

if TYPE_CHECKING:
    from toolpost.wire.messages import Request

_PLACES = ("openapi.json", "openapi.yaml", "swagger.json", "v3/api-docs", "api-docs", "swagger/v1/swagger.json")
_BEARER = "bearer "
_NOT_A_KEY = frozenset({"authorization", "cookie", "proxy-authorization"})


class OpenApiTransport(Transport):
    """REST APIs: an OpenAPI or Swagger document at a URL or in a file, or the base URL of an API."""

    name = "http"
    options = HttpOptions
    source_class = "toolpost.sources.openapi.source:OpenApiSource"
    requires = ("httptools", "http")
    forms = ("url", "file")

    def probes(self, url: str) -> Iterator[Request]:
        from toolpost.wire.messages import Request  # noqa: PLC0415 - only detection needs it

        for place in well_known_urls(url):
            yield Request("GET", place)

    def detect(self, response: ProbeResponse) -> Detection | None:
        from toolpost.sources.openapi.documents import parse_openapi  # noqa: PLC0415 - only detection needs it

        if response.status != 200 or response.method != "GET":
            return None
        try:
            parse_openapi(response.body, response.url)
        except ConfigError:
            return None
        because = "it is the document of an API" if response.is_given else f"its document is at {response.url}"
        return Detection("a REST API", because)

    def configure(self, config: ExternalToolConfig, detection: Detection) -> ExternalToolConfig:
        """Turn a secret header into the credential: the document declares which operations need it, and where."""
        changed = super().configure(config, detection)
        return changed.model_copy(update=_header_credential(config))


def _header_credential(config: ExternalToolConfig) -> dict[str, Any]:
    secret = [name for name in config.headers if is_secret_variable(name)]
    if config.auth_type is not AuthType.NONE or len(secret) != 1:
        return {}
    name, value = secret[0], config.headers[secret[0]]
    rest = {key: other for key, other in config.headers.items() if key != name}
    if name.lower() == "authorization" and value.lower().startswith(_BEARER):
        token = value[len(_BEARER) :].strip()
        return {"headers": rest, "auth_type": AuthType.BEARER, "auth_config": {"token": token}}
    if name.lower() in _NOT_A_KEY:
        return {}
    return {"headers": rest, "auth_type": AuthType.API_KEY, "auth_config": {"api_key": value, "header": name}}


def well_known_urls(base_url: str) -> list[str]:
    """Return the candidate URLs of a document, below the base URL and at the root of its host."""
    parts = urlsplit(base_url)
    folders = list(dict.fromkeys([parts.path.rstrip("/"), ""]))
    return [
        urlunsplit((parts.scheme, parts.netloc, f"{folder}/{place}", "", "")) for folder in folders for place in _PLACES
    ]
