"""What only some kinds of source have in their configuration: tools written down, and how each transport is spoken."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from toolpost.contracts.spec import ReplayClass, SideEffects

HEADER_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"


class ConfigModel(BaseModel):
    """What all configuration has in common: snake_case or camelCase keys, nothing unknown."""

    model_config = ConfigDict(
        extra="forbid", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, frozen=True
    )


class DeclaredTool(ConfigModel):
    """A tool that an operator describes, because nobody else does."""

    description: str = ""
    input_schema: dict[str, Any] = Field(default_factory=lambda: {"type": "object"}, description="JSON Schema")
    output_schema: dict[str, Any] | None = Field(default=None, description="JSON Schema of what it gives")
    side_effects: SideEffects = "external"
    destructive: bool | None = None
    replay: ReplayClass | None = None
    timeout_s: float | None = Field(default=None, gt=0)
    tags: list[str] = Field(default_factory=list[str])


class CliTool(DeclaredTool):
    """A command: `args` follow the source's `connection`, with `{name}` where an argument goes."""

    args: list[str] = Field(default_factory=list[str], description="Words of the command, with {name} for arguments")
    stdin: str | None = Field(default=None, description="What is written to it, with {name} for arguments")
    output: Literal["auto", "json", "lines", "text", "bytes"] = "auto"
    success_codes: list[int] = Field(default_factory=lambda: [0], min_length=1)


class CliOptions(ConfigModel):
    """What only command lines have; a tool that stands in `manual`, too, has from it what it does not say itself."""

    tools: dict[str, CliTool] = Field(default_factory=dict[str, CliTool])
    manual: str | None = Field(
        default=None, min_length=1, description="The path or the address of a UTCP manual that describes the commands"
    )
    pass_env: list[str] = Field(default_factory=list[str], description="Variables of this process handed on")
    max_output_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)


class WebSocketTool(DeclaredTool):
    """A message and what comes back for it: one answer, or a stream of them."""

    message: Any = Field(default=None, description="What is sent, with {name} for arguments; none sends them all")
    stream: bool = Field(default=False, description="Whether answers go on until a limit")
    max_messages: int = Field(default=100, ge=1)
    max_seconds: float | None = Field(default=None, gt=0)
    last_field: str | None = Field(default=None, description="Where the last answer of a stream says that it is")


class WebSocketOptions(ConfigModel):
    """What only WebSockets have; `multiplexed` shares one connection, told apart by a correlation id."""

    tools: dict[str, WebSocketTool] = Field(default_factory=dict[str, WebSocketTool])
    mode: Literal["per_call", "multiplexed"] = "per_call"
    id_field: str = Field(default="id", min_length=1, description="Where the correlation id is sent")
    id_type: Literal["integer", "text"] = "integer"
    reply_id_field: str | None = Field(default=None, description="Where it comes back, if elsewhere")
    subprotocols: list[str] = Field(default_factory=list[str])
    format: Literal["json", "text", "bytes"] = "json"
    max_message_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)


class GraphqlOptions(ConfigModel):
    """What only GraphQL has; `selections` are keyed by the field's name."""

    depth: int = Field(default=2, ge=0, le=8, description="How deep the default selection goes")
    selections: dict[str, str] = Field(default_factory=dict[str, str])
    schema_file: str | None = Field(default=None, description="SDL or introspection in a file, where a server has none")


class WebhookTool(DeclaredTool):
    """A webhook: the arguments are its body, or its query where the method has none."""

    url: str = Field(default="", description="A path below the connection, or a whole URL; empty is the connection")
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    idempotency_header: str | None = Field(
        default=None,
        pattern=HEADER_NAME,
        description="Where a key is sent that stays the same however often a call is tried",
    )


class WebhookSignature(ConfigModel):
    """How a body is signed: an HMAC of it in a header."""

    secret: str = Field(min_length=1, repr=False)
    header: str = Field(default="X-Signature-256", pattern=HEADER_NAME)
    algorithm: Literal["sha256", "sha512", "sha1"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: str = ""
    timestamp_header: str | None = Field(default=None, pattern=HEADER_NAME)


class WebhookOptions(ConfigModel):
    """What only webhooks have; `n8n` finds the tools over that program's public API."""

    kind: Literal["auto", "plain", "n8n"] = "auto"
    tools: dict[str, WebhookTool] = Field(default_factory=dict[str, WebhookTool])
    signature: WebhookSignature | None = None


class UtcpOptions(ConfigModel):
    """What only UTCP manuals have."""

    allowed_communication_protocols: list[str] | None = Field(
        default=None, description="Kinds of call templates that are taken; the manual's own kind by default"
    )
    variables: dict[str, str] = Field(default_factory=dict[str, str], repr=False)
    bridge: bool = Field(default=False, description="Whether other kinds go through the utcp packages")
