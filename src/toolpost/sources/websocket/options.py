"""Options of WebSocket sources."""

# Annotations are evaluated as they stand, as in `config_model`.
from typing import Any, Literal

from pydantic import Field

from toolpost.contracts.config import DeclaredTool
from toolpost.contracts.config_model import ConfigModel


class WebSocketTool(DeclaredTool):
    """A message and its reply: one message, or a stream of messages."""

    message: Any = Field(default=None, description="The message, with {name} for arguments; by default, all arguments")
    stream: bool = Field(default=False, description="Whether answers continue until a limit")
    max_messages: int = Field(default=100, ge=1)
    max_seconds: float | None = Field(default=None, gt=0)
    last_field: str | None = Field(default=None, description="Path of the field that marks the last answer of a stream")


class WebSocketOptions(ConfigModel):
    """Options of WebSockets; `multiplexed` calls share one connection and are matched by a correlation id."""

    tools: dict[str, WebSocketTool] = Field(default_factory=dict[str, WebSocketTool])
    mode: Literal["per_call", "multiplexed"] = "per_call"
    id_field: str = Field(default="id", min_length=1, description="Path of the correlation id in a message")
    id_type: Literal["integer", "text"] = "integer"
    reply_id_field: str | None = Field(
        default=None, description="Path of the correlation id in an answer, if different"
    )
    subprotocols: list[str] = Field(default_factory=list[str])
    format: Literal["json", "text", "bytes"] = "json"
    max_message_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)
