"""ExternalToolConfig with the keys that only penguiflow has, and the models of artifact extraction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field, model_validator

from toolpost.contracts.config import ExternalToolConfig as _ExternalToolConfig
from toolpost.contracts.context import ToolContext
from toolpost.contracts.retries import RetryPolicy
from toolpost.contracts.source_kinds import AuthType, TransportType, UtcpMode
from toolpost.schema.json_values import is_object

__all__ = [  # noqa: RUF022 - sorted as `sorted` does, constants among the others
    "ArtifactExtractionConfig",
    "ArtifactFieldConfig",
    "AuthType",
    "BinaryDetectionConfig",
    "DEFAULT_BINARY_SIGNATURES",
    "ExternalToolConfig",
    "McpTransportMode",
    "OutputTransformer",
    "ResourceHandlingConfig",
    "RetryPolicy",
    "TransportType",
    "UtcpMode",
]

OutputTransformer = Callable[[str, Any, ToolContext], Any | Awaitable[Any]]

DEFAULT_BINARY_SIGNATURES: dict[str, tuple[str, str]] = {
    "JVBERi": ("pdf", "application/pdf"),
    "iVBORw": ("png", "image/png"),
    "/9j/": ("jpeg", "image/jpeg"),
    "R0lGOD": ("gif", "image/gif"),
    "UEsDB": ("zip", "application/zip"),
    "UEsFB": ("zip", "application/zip"),
    "AAAA": ("unknown", "application/octet-stream"),
}


class McpTransportMode(StrEnum):
    """Transports of an MCP server with a URL."""

    AUTO = "auto"
    SSE = "sse"
    STREAMABLE_HTTP = "streamable_http"


class BinaryDetectionConfig(BaseModel):
    """Strings of a result that are files in base64: they start with a signature and are long enough."""

    enabled: bool = True
    signatures: dict[str, tuple[str, str]] = Field(
        default_factory=lambda: dict(DEFAULT_BINARY_SIGNATURES),
        description="The beginning of the base64 text, and the extension and media type that it stands for",
    )
    min_size_for_detection: int = Field(default=1000, ge=0, description="Shorter texts are ignored")
    max_decode_bytes: int = Field(default=5_000_000, ge=1000, description="Larger files are not replaced")
    require_magic_bytes: bool = Field(
        default=True, description="Whether the content must begin with the signature of its type"
    )


class ResourceHandlingConfig(BaseModel):
    """Keys for links to resources, without effect: Toolpost reads resources on request."""

    enabled: bool = True
    auto_read_if_size_under_bytes: int = Field(default=0, ge=0)
    inline_text_if_under_chars: int = Field(default=10_000, ge=0)
    cache_reads_to_artifacts: bool = True


class ArtifactFieldConfig(BaseModel):
    """A member of a tool's result that becomes an artifact; a dot in `field_path` leads into an object."""

    field_path: str
    content_type: str
    mime_type: str | None = None
    summary_template: str = "Downloaded {content_type} ({size} bytes)"


class ArtifactExtractionConfig(BaseModel):
    """Parts of a tool's result that are stored as artifacts; a model reads a summary instead.

    The files in typed blocks of an MCP server are always stored, regardless of `handle_mcp_typed_content`.
    """

    max_inline_size: int = Field(default=10_000, ge=0, description="Longer texts, in characters, become artifacts")
    auto_artifact_large_content: bool = True
    binary_detection: BinaryDetectionConfig = Field(default_factory=BinaryDetectionConfig)
    resources: ResourceHandlingConfig = Field(default_factory=ResourceHandlingConfig)
    handle_mcp_typed_content: bool = True
    tool_fields: dict[str, list[ArtifactFieldConfig]] = Field(default_factory=dict, description="By the tool's name")
    default_binary_summary: str = "A file ({mime_type}, {size} bytes) is stored as artifact {artifact_id}"
    default_text_summary: str = "A text of {size} characters is stored as artifact {artifact_id}"


class PenguiflowToolConfig(_ExternalToolConfig, title="ExternalToolConfig"):
    """One external tool source; Toolpost's own configuration, and the keys that only penguiflow has.

    `mcp_transport_mode` becomes `options.transport`, and `cookie_name` and `cookie_value` become `name` and `value`.
    `arg_validation` has no effect: all arguments are validated against the schema of their tool.
    """

    mcp_transport_mode: McpTransportMode = McpTransportMode.AUTO
    arg_validation: dict[str, Any] = Field(default_factory=lambda: {"emit_suspect": True})
    artifact_extraction: ArtifactExtractionConfig = Field(default_factory=ArtifactExtractionConfig)
    output_transformer: OutputTransformer | None = Field(default=None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _with_own_keys(cls, data: Any) -> Any:
        if not is_object(data):
            return data
        fields = dict(data)
        if "mcp_transport_mode" in fields:
            fields.setdefault("options", {"transport": str(fields["mcp_transport_mode"])})
        if is_object(auth := fields.get("auth_config")):
            fields["auth_config"] = {key.removeprefix("cookie_"): value for key, value in auth.items()}
        return fields


ExternalToolConfig = PenguiflowToolConfig  # as penguiflow calls it
