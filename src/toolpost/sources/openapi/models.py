"""One operation of a REST API, as read from its document: everything that is needed to describe it and to call it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.spec import JsonSchema


Location = Literal["path", "query", "header", "cookie"]
Style = Literal["simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter; `argument` is what the tool calls it, which differs from `name` where two would clash.

    With a `content_type` its value is sent as one document of that type, and `style` does not apply.
    `item_delimiters` join the items of lists within a list, one character a level (Swagger 2).
    """

    name: str
    location: Location
    argument: str
    schema: JsonSchema | bool
    required: bool = False
    description: str = ""
    style: Style = "form"
    explode: bool = True
    allow_reserved: bool = False
    allow_empty: bool = False
    content_type: str | None = None
    deprecated: bool = False
    item_delimiters: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldEncoding:
    """How one field of a form is sent."""

    content_type: str | None = None
    style: Style = "form"
    explode: bool = True
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    is_file: bool = False
    item_delimiters: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBody:
    """What is sent; `content_type` is the one chosen among those that the document offers."""

    argument: str
    content_type: str
    schema: JsonSchema | bool
    required: bool = False
    description: str = ""
    parts: Mapping[str, FieldEncoding] = field(default_factory=dict[str, FieldEncoding])


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResponse:
    """What comes back with one status (`200`, `2XX`, `default`), by media type."""

    status: str
    description: str = ""
    content: Mapping[str, JsonSchema | bool | None] = field(default_factory=dict[str, "JsonSchema | bool | None"])
    links: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityRequirement:
    """One scheme that must be presented, by its name in the document, with the scopes it must have."""

    scheme: str
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityScheme:
    """How a scheme of the document is presented."""

    name: str
    type: Literal["apiKey", "http", "oauth2", "openIdConnect", "mutualTLS"]
    location: Literal["query", "header", "cookie"] = "header"
    parameter: str = ""
    scheme: str = ""
    token_url: str | None = None
    flows: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOperation:
    """One method on one path.

    `tool_name` is unique within the document and legal as the second part of a tool's
    name. `servers` are absolute URLs, the first is the one to call. `security` are
    alternatives, each a set of needs that hold together; an empty tuple of alternatives
    means that nothing is presented. `definitions` are the schemas that parameters and
    body point to with `#/$defs/NAME`, `response_definitions` those that answers point to:
    what is sent leaves out what is read-only, so one name may have two shapes. The input
    and output schemas made of this operation carry those that they reach.
    """

    tool_name: str
    method: str
    path: str
    servers: tuple[str, ...]
    summary: str = ""
    description: str = ""
    operation_id: str | None = None
    tags: tuple[str, ...] = ()
    deprecated: bool = False
    parameters: tuple[Parameter, ...] = ()
    body: RequestBody | None = None
    responses: tuple[ApiResponse, ...] = ()
    security: tuple[tuple[SecurityRequirement, ...], ...] = ()
    definitions: Mapping[str, JsonSchema | bool] = field(default_factory=dict[str, "JsonSchema | bool"])
    response_definitions: Mapping[str, JsonSchema | bool] = field(default_factory=dict[str, "JsonSchema | bool"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiDescription:
    """A whole document, read: its operations, its schemes, and what was wrong with it.

    `files` are the files beside the first one that parts of it were in.
    """

    title: str
    version: str
    operations: tuple[ApiOperation, ...]
    schemes: Mapping[str, SecurityScheme] = field(default_factory=dict[str, SecurityScheme])
    problems: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
