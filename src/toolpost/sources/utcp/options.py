"""Options of UTCP sources."""

# Annotations are evaluated as they stand, as in `config_model`.
from typing import Any

from pydantic import Field

from toolpost.contracts.config_model import ConfigModel


class UtcpOptions(ConfigModel):
    """Options of UTCP manuals."""

    allowed_communication_protocols: list[str] | None = Field(
        default=None, description="Kinds of call templates that are taken; the manual's own kind by default"
    )
    mcp: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="Options of MCP servers that a manual names"
    )
    variables: dict[str, str] = Field(default_factory=dict[str, str], repr=False)
    bridge: bool = Field(default=False, description="Whether other kinds go through the utcp packages")
