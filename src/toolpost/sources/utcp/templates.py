"""Call templates: their models, the variables in them, and the credentials that they add to a request.

Variables, `${NAME}` or `$NAME`, are filled from the values that the operator set for the source. An unset variable
is missing only as `${NAME}`, or as `$NAME` in capitals outside of messages. Any other dollar sign is text: a price, a
reference, a variable of a shell or a query.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from toolpost.contracts.calls import Credential
from toolpost.contracts.errors import ConfigError, ToolAuthError
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.secrets import is_secret_name
from toolpost.schema.violations import plain_message
from toolpost.web.client_credentials import ClientGrant, ClientToken, ClientTokens
from toolpost.web.requests import (
    NOTHING,
    Presentation,
    Send,
    UnsendableError,
    check_header_value,
    present_headers,
    present_key,
)

# Of the templates most manuals have one kind: the validator of each is built when it is first needed.
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


class TemplateTokens:
    """Token cache of templates; remembers the clients whose secret is only accepted in a header."""

    def __init__(self, send: Send) -> None:
        self._tokens = ClientTokens(send)
        self._by_header: set[OAuth2Auth] = set()

    async def token(self, auth: OAuth2Auth) -> ClientToken:
        """Request a token with the secret in the body, then in a header, as the reference client does."""
        if auth not in self._by_header:
            with suppress(ToolAuthError):
                return await self._tokens.token(_grant(auth, "post"))
        token = await self._tokens.token(_grant(auth, "basic"))
        self._by_header.add(auth)
        return token

    def forget(self, value: str) -> None:
        """Remove a token from the cache."""
        self._tokens.forget(value)

    async def close(self) -> None:
        """Cancel token requests."""
        await self._tokens.close()


async def present_credentials(
    auth: ApiKeyAuth | BasicAuth | OAuth2Auth | None, credential: Credential, tokens: TemplateTokens
) -> Presentation:
    """Combine the source's credential with the template's auth; the source's headers take precedence."""
    if auth is None and not credential.headers:
        return NOTHING
    own = present_headers(credential)
    template = await _template_presentation(auth, tokens)
    if own is NOTHING or template is NOTHING:
        return template if own is NOTHING else own
    taken = {name.lower() for name, _ in own.headers}
    headers = tuple(pair for pair in template.headers if pair[0].lower() not in taken)
    tokens_left = template.tokens if headers == template.headers else ()
    return own.joined(template._replace(headers=headers, tokens=tokens_left))


def static_headers(auth: ApiKeyAuth | BasicAuth | OAuth2Auth) -> dict[str, str] | None:
    """Return the auth as static headers, None where it needs a token or another location."""
    match auth:
        case BasicAuth():
            return {"Authorization": _basic_header(auth)}
        case ApiKeyAuth(location="header"):
            return {auth.var_name: auth.api_key}
        case _:
            return None


async def _template_presentation(
    auth: ApiKeyAuth | BasicAuth | OAuth2Auth | None, tokens: TemplateTokens
) -> Presentation:
    match auth:
        case None:
            return NOTHING
        case ApiKeyAuth():
            return _api_key_presentation(auth)
        case BasicAuth():
            return Presentation(headers=(("Authorization", _basic_header(auth)),))
        case OAuth2Auth():
            token = await tokens.token(auth)
            return Presentation(headers=(("Authorization", f"{token.kind} {token.value}"),), tokens=(token.value,))


def _api_key_presentation(auth: ApiKeyAuth) -> Presentation:
    if auth.location == "header":
        try:
            check_header_value(auth.api_key)
        except (UnsendableError, UnicodeEncodeError):
            raise ConfigError(f"the API key for {auth.var_name!r} holds what a header cannot carry.") from None
    return present_key(auth.location, auth.var_name, auth.api_key)


def _basic_header(auth: BasicAuth) -> str:
    return f"Basic {base64.b64encode(f'{auth.username}:{auth.password}'.encode()).decode()}"


def _grant(auth: OAuth2Auth, method: Literal["basic", "post"]) -> ClientGrant:
    return ClientGrant(
        scheme=auth.client_id,
        token_url=auth.token_url,
        client_id=auth.client_id,
        client_secret=auth.client_secret,
        scope=auth.scope or "",
        method=method,
    )


Method = Literal["GET", "POST", "PUT", "DELETE", "PATCH"]
_MAX_ISSUES = 3


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _null_to_map(value: Any) -> Any:
    # Programs write null for absent mappings and lists.
    return {} if value is None else value


def _null_to_list(value: Any) -> Any:
    return [] if value is None else value


def _check_encoding(name: str | None) -> str | None:
    # Checked before a call is sent, because its answer could not be decoded afterwards.
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
            msg = "message_delimiter has an escape that is none; write one, or interpret_escape_sequences: false"
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


_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)", re.ASCII)
_STEP_OUTPUT = re.compile(r"CMD_\d+_OUTPUT", re.ASCII)
# Shell commands and GraphQL queries have variables of their own; a text is the output itself.
_VERBATIM_FIELDS = {"cli": frozenset({"commands"}), "graphql": frozenset({"query"}), "text": frozenset({"content"})}
_MESSAGE_FIELDS = frozenset({"message", "request_data_template"})
_IDENTITY_FIELDS = frozenset({"call_template_type", "name"})


class FilledTemplate(NamedTuple):
    """A template with its variables filled in, the values used, and the names that are not set."""

    template: dict[str, Any]
    values: tuple[str, ...]
    missing: tuple[str, ...]

    def __repr__(self) -> str:
        return f"FilledTemplate({len(self.values)} values, missing={self.missing})"


class Variables:
    """Variables of one manual; `values` are the operator's for this source, by name or by the manual's key."""

    def __init__(self, manual: str, values: Sequence[Mapping[str, Any]], environ: Mapping[str, str]) -> None:
        self.secrets: set[str] = set()  # values of templates whose names mark them as secret
        self._prefix = f"{manual.replace('_', '__')}_"
        self._values = values
        self._environ = environ

    def key(self, name: str) -> str:
        """Return the key of a variable: its name prefixed with the manual's, as the format defines it."""
        return f"{self._prefix}{name}"

    def find(self, name: str) -> str | None:
        """Return the value of a variable, None where it is not set."""
        key = self.key(name)
        for values in self._values:
            value = values.get(key, values.get(name))
            if isinstance(value, str):
                return value
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return str(value)
        # Only by the prefixed key: a manual must not read other variables of the environment.
        return self._environ.get(key)

    def fill(self, template: Mapping[str, Any]) -> FilledTemplate:
        """Fill the variables of a template in all fields that may have some."""
        kind = str(template.get("call_template_type"))
        filler = _TemplateFiller(self)
        fields = {
            key: value
            if key in _IDENTITY_FIELDS or key in _VERBATIM_FIELDS.get(kind, ())
            else filler.fill(value, is_message=key in _MESSAGE_FIELDS)
            for key, value in template.items()
        }
        if kind == "cli":
            script_variables = self._script_variables(template.get("commands"))
            filler.values += script_variables.values()
            declared: Any = fields.get("env_vars") or {}
            fields["env_vars"] = {**script_variables, **declared} if is_object(declared) else declared
            self.secrets |= self._inherited_secrets(template)
        self.secrets |= {*filler.secrets, *_literal_secrets(fields)}
        return FilledTemplate(fields, tuple(dict.fromkeys(filler.values)), tuple(dict.fromkeys(filler.missing)))

    def _script_variables(self, commands: Any) -> dict[str, str]:
        """Return the variables that commands refer to."""
        # They become environment variables of the script, where they cannot become code.
        names = [one or other for one, other in _VARIABLE.findall(str(commands))]
        values = {name: self.find(name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def _inherited_secrets(self, template: Mapping[str, Any]) -> set[str]:
        """Return the secrets that a script inherits from this process."""
        names: Any = template.get("inherit_env_vars")
        variables = [name for name in names if isinstance(name, str)] if is_array(names) else []
        return {self._environ[name] for name in variables if is_secret_name(name) and name in self._environ}


def _literal_secrets(part: Mapping[str, Any]) -> Iterator[str]:
    """Yield the literal secrets of a template, also without a scheme such as `Bearer` before them."""
    for name, value in part.items():
        if is_object(value):
            yield from _literal_secrets(value)
        elif isinstance(value, str) and is_secret_name(name):
            yield from (value, value.rpartition(" ")[2])


class _TemplateFiller:
    """Fills one template, and collects the values used and the names that are not set."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        self.values: list[str] = []
        self.secrets: list[str] = []
        self.missing: list[str] = []

    def fill(self, value: Any, *, is_message: bool) -> Any:
        if isinstance(value, str):
            return _VARIABLE.sub(lambda match: self._value(match, is_message=is_message), value)
        if is_array(value):
            return [self.fill(item, is_message=is_message) for item in value]
        if is_object(value):
            return {key: self.fill(item, is_message=is_message) for key, item in value.items()}
        return value

    def _value(self, match: re.Match[str], *, is_message: bool) -> str:
        name = match[1] or match[2]
        value = self._variables.find(name)
        if value is not None:
            self.values.append(value)
            if is_secret_name(name):
                self.secrets.append(value)
            return value
        is_required = match[1] is not None or (name.isupper() and not is_message)
        if is_required and not _STEP_OUTPUT.fullmatch(name):
            self.missing.append(name)
        return match[0]
