"""Resources of MCP servers, as ToolNode lists them."""

from typing import Any

from pydantic import AliasChoices, BaseModel, Field

__all__ = ["ResourceInfo", "ResourceTemplateInfo"]

_MIME_TYPE = AliasChoices("mime_type", "mimeType")


class ResourceInfo(BaseModel):
    """A resource of a server."""

    uri: str
    name: str | None = None
    description: str | None = None
    mime_type: str | None = Field(default=None, validation_alias=_MIME_TYPE)
    size_bytes: int | None = Field(default=None, validation_alias=AliasChoices("size_bytes", "size"))
    annotations: dict[str, Any] = Field(default_factory=dict)


class ResourceTemplateInfo(BaseModel):
    """A template from which a server makes resources."""

    uri_template: str = Field(validation_alias=AliasChoices("uri_template", "uriTemplate"))
    name: str | None = None
    description: str | None = None
    mime_type: str | None = Field(default=None, validation_alias=_MIME_TYPE)
