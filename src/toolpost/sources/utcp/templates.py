"""Call templates of UTCP tools, and their authentication."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from toolpost.contracts.errors import ConfigError
from toolpost.schema.violations import plain_message

_MAX_ISSUES = 3
# Most manuals use one kind of template: build the validator of each kind on first use.
_MODEL = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True, defer_build=True)


class _AuthModel(BaseModel):
    model_config = _MODEL


class ApiKeyAuth(_AuthModel):
    """An API key in a header, query parameter or cookie; a bearer token is a key in the header Authorization."""

    auth_type: Literal["api_key"]
    api_key: str = Field(min_length=1, repr=False)
    var_name: str = Field(default="X-Api-Key", min_length=1)
    location: Literal["header", "query", "cookie"] = "header"


class BasicAuth(_AuthModel):
    """HTTP basic authentication."""

    auth_type: Literal["basic"]
    username: str
    password: str = Field(repr=False)


class OAuth2Auth(_AuthModel):
    """Client credentials grant (RFC 6749 section 4.4)."""

    auth_type: Literal["oauth2"]
    token_url: str = Field(min_length=1)
    client_id: str
    client_secret: str = Field(repr=False)
    scope: str | None = None


AuthObject = Annotated[ApiKeyAuth | BasicAuth | OAuth2Auth, Field(discriminator="auth_type")]


Method = Literal["GET", "POST", "PUT", "DELETE", "PATCH"]


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _null_to_map(value: Any) -> Any:
    # Programs write null for absent mappings and lists.
    return {} if value is None else value


def _null_to_list(value: Any) -> Any:
    return [] if value is None else value


def _check_encoding(name: str | None) -> str | None:
    # Checked before a call is sent, because its response could not be decoded afterwards.
    try:
        b"x".decode("utf-8" if name is None else name, "replace")
    except LookupError:
        msg = f"{name!r} is not an encoding that is known here"
        raise ValueError(msg) from None
    return name


StringMap = Annotated[dict[str, str], BeforeValidator(_null_to_map)]
StringList = Annotated[list[str], BeforeValidator(_null_to_list)]


class CallTemplate(BaseModel):
    """Base of all call templates; unknown fields are ignored, as the format requires."""

    model_config = _MODEL


class WebTemplate(CallTemplate):
    """Base of the templates that start with an HTTP request."""

    url: str = Field(min_length=1)
    auth: AuthObject | None = None
    headers: StringMap = Field(default_factory=dict[str, str], repr=False)
    header_fields: StringList = Field(default_factory=list[str])


class HttpTemplate(WebTemplate):
    """An HTTP request and its response."""

    http_method: Annotated[Method, BeforeValidator(_upper)] = "GET"
    content_type: str = "application/json"
    body_field: str | None = "body"


class SseTemplate(WebTemplate):
    """A stream of server-sent events; a POST where the call has a body, else a GET."""

    event_type: str | None = None
    body_field: str | None = None


class StreamTemplate(WebTemplate):
    """A response that is read as a stream; `timeout` is in milliseconds."""

    http_method: Annotated[Literal["GET", "POST"], BeforeValidator(_upper)] = "GET"
    content_type: str = "application/octet-stream"
    body_field: str | None = None
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class GraphqlTemplate(WebTemplate):
    """A GraphQL operation; without a `query`, it is built from the tool's name and arguments."""

    operation_type: Literal["query", "mutation"] = "query"
    operation_name: str | None = None
    query: str | None = None
    variable_types: StringMap = Field(default_factory=dict[str, str])

    @property
    def is_mutation(self) -> bool:
        """Whether the operation may have side effects."""
        return self.operation_type == "mutation" or "mutation" in (self.query or "")


class WebSocketTemplate(WebTemplate):
    """A WebSocket message and its answer; `timeout` is in seconds."""

    message: str | dict[str, Any] | list[Any] | None = None
    protocol: str | None = None
    response_format: Literal["json", "text", "raw"] | None = None
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class CommandStep(CallTemplate):
    """One command of a script."""

    command: str = Field(min_length=1)
    append_to_final_output: bool | None = None


class CliTemplate(CallTemplate):
    """A bash script; without `inherit_env_vars`, it inherits the few variables that every program needs."""

    commands: list[CommandStep] = Field(min_length=1)
    env_vars: StringMap = Field(default_factory=dict[str, str], repr=False)
    inherit_env_vars: list[str] | None = None
    working_dir: str | None = None


class TextTemplate(CallTemplate):
    """A text that is the output."""

    content: str


class FileTemplate(CallTemplate):
    """A file whose content is the output."""

    file_path: str = Field(min_length=1)


class SocketTemplate(CallTemplate):
    """Base of the TCP and UDP templates; `timeout` is in milliseconds."""

    host: str = Field(min_length=1)
    port: int = Field(ge=1, le=65535)
    request_data_format: Literal["json", "text"] = "json"
    request_data_template: str | None = None
    response_byte_format: Annotated[str | None, AfterValidator(_check_encoding)] = "utf-8"
    timeout: float = Field(default=30_000, gt=0, allow_inf_nan=False)


class TcpTemplate(SocketTemplate):
    """A message over a TCP connection; the framing says where the answer ends."""

    framing_strategy: Literal["length_prefix", "delimiter", "fixed_length", "stream"] = "stream"
    length_prefix_bytes: Literal[1, 2, 4, 8] = 4
    length_prefix_endian: Literal["big", "little"] = "big"
    message_delimiter: str = "\0"
    interpret_escape_sequences: bool = True
    fixed_message_length: int | None = Field(default=None, ge=1)
    max_response_size: int = Field(default=65_536, ge=1)

    @model_validator(mode="after")
    def _check_framing(self) -> Self:
        if self.framing_strategy == "fixed_length" and self.fixed_message_length is None:
            msg = "framing_strategy fixed_length needs fixed_message_length"
            raise ValueError(msg)
        try:
            self.delimiter.decode()
        except UnicodeError:
            msg = "message_delimiter contains an invalid escape; correct it, or set interpret_escape_sequences: false"
            raise ValueError(msg) from None
        return self

    @property
    def delimiter(self) -> bytes:
        """Delimiter of messages, with its escape sequences interpreted unless the template disables that."""
        text = self.message_delimiter or "\0"
        if self.interpret_escape_sequences:
            text = text.encode("latin-1", "backslashreplace").decode("unicode_escape")
        return text.encode()


class UdpTemplate(SocketTemplate):
    """A datagram and a fixed number of answers."""

    number_of_response_datagrams: int = Field(default=1, ge=0, le=1024)


RequestTemplate: TypeAlias = HttpTemplate | SseTemplate | StreamTemplate
TEMPLATE_TYPES: dict[str, type[CallTemplate]] = {
    "http": HttpTemplate,
    "sse": SseTemplate,
    "streamable_http": StreamTemplate,
    "graphql": GraphqlTemplate,
    "websocket": WebSocketTemplate,
    "cli": CliTemplate,
    "text": TextTemplate,
    "file": FileTemplate,
    "tcp": TcpTemplate,
    "udp": UdpTemplate,
}


def parse_template(data: dict[str, Any]) -> CallTemplate:
    """Parse a call template of a known kind; the ConfigError names invalid fields without their values."""
    try:
        return TEMPLATE_TYPES[str(data["call_template_type"])].model_validate(data)
    except ValidationError as error:
        issues = [
            f"{'.'.join(map(str, issue['loc']))}: {plain_message(issue['msg'])}"
            for issue in error.errors(include_url=False, include_input=False)[:_MAX_ISSUES]
        ]
        raise ConfigError(f"its call template cannot be used: {'; '.join(issues)}") from None
