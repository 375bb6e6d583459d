"""Source of tools for UTCP manuals, and export of the catalog as a manual."""

from __future__ import annotations

from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.sources.base import Detection, ProbeResponse, Transport
from toolpost.sources.utcp.options import UtcpOptions
from toolpost.wire.targets import is_http_url


class UtcpTransport(Transport):
    """UTCP manuals at a URL, in a file or in the configuration itself."""

    name = "utcp"
    options = UtcpOptions
    source_class = "toolpost.sources.utcp.source:UtcpSource"
    forms = ("url", "file")

    def runs_code(self, config: ExternalToolConfig) -> bool:
        """Return True for a local manual, which may describe commands; those of a remote one are not run."""
        return not is_http_url(config.connection)

    def without_elicitation(self, config: ExternalToolConfig) -> ExternalToolConfig:
        """Switch elicitation off for the MCP servers of a manual."""
        return config.with_options(mcp={**config.read_options(UtcpOptions).mcp, "elicitation": False})

    def detect(self, response: ProbeResponse) -> Detection | None:
        if response.status != 200 or response.method != "GET" or not _is_manual(response.body, response.url):
            return None
        return Detection("a UTCP manual", "it is a UTCP manual")


def _is_manual(body: bytes, label: str) -> bool:
    from toolpost.sources.utcp.documents import parse_document  # noqa: PLC0415 - only detection needs it

    if b"utcp_version" not in body and b"manual_version" not in body:
        return False
    try:
        document = parse_document(body, label).data
    except ConfigError:
        return False
    return "utcp_version" in document or ("manual_version" in document and "tools" in document)
