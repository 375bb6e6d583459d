"""Options of MCP sources."""

# Annotations are evaluated as they stand, as in `config_model`.
from typing import Any, Literal

from pydantic import Field

from toolpost.contracts.config_model import ConfigModel
from toolpost.contracts.source_kinds import McpTransport


class McpOptions(ConfigModel):
    """Options of MCP servers.

    `protocol` pins a version: `legacy` is the handshake up to 2025-11-25. `roots=None` means the allowed paths.
    """

    transport: McpTransport = McpTransport.AUTO
    protocol: Literal["auto", "legacy", "2026-07-28"] = "auto"
    max_message_bytes: int = Field(
        default=64 * 1024 * 1024, ge=1024, description="The longest message that is accepted"
    )
    poll_s: float = Field(
        default=300.0, ge=1.0, description="Seconds between listings of a server that sends no notifications"
    )
    elicitation: bool = Field(default=True, description="Whether the server may request input from a user")
    sampling: bool = Field(default=False, description="Whether the server may prompt the configured chat model")
    roots: list[str] | None = None
    name_in_descriptions: bool = Field(default=False, description="Whether descriptions begin with the source's [name]")
    declared_tools: list[dict[str, Any]] = Field(
        default_factory=list[dict[str, Any]],
        description="Tools in the form of the server's listing, used before a user has signed in",
    )
