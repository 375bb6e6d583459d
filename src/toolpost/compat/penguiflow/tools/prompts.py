"""Prompts of MCP servers, as ToolNode lists them."""

from pydantic import BaseModel, Field

__all__ = ["PromptArgumentInfo", "PromptInfo"]


class PromptArgumentInfo(BaseModel):
    """An argument of a prompt."""

    name: str
    description: str | None = None
    required: bool = False


class PromptInfo(BaseModel):
    """A prompt of a server."""

    name: str
    description: str | None = None
    arguments: list[PromptArgumentInfo] = Field(default_factory=list[PromptArgumentInfo])
