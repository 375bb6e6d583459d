"""Data model of an API: operations, parameters, bodies, responses and security schemes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from toolpost.contracts.http_syntax import TOKEN
from toolpost.contracts.spec import JsonSchema

Location = Literal["path", "query", "header", "cookie"]
Style = Literal["simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject"]
# RFC 9110 §5.6.2: a header name is a token.
HEADER_NAME = re.compile(TOKEN)


class Parameter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parameter of an operation; `argument` is its name in the tool, unique across locations.

    With a `content_type` the value is sent as one document of that type, and `style` does not apply.
    `item_delimiters` join the items of nested lists, one character per level (Swagger 2).
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


class FieldEncoding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Encoding of one form field (OpenAPI Encoding Object)."""

    content_type: str | None = None
    style: Style = "form"
    explode: bool = True
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    is_file: bool = False
    item_delimiters: str = ""


class RequestBody(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Request body in the media type chosen among those that the document offers."""

    argument: str
    content_type: str
    schema: JsonSchema | bool
    required: bool = False
    description: str = ""
    parts: Mapping[str, FieldEncoding] = field(default_factory=dict[str, FieldEncoding])


class ApiResponse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Response schemas of one status (`200`, `2XX`, `default`), by media type."""

    status: str
    description: str = ""
    content: Mapping[str, JsonSchema | bool | None] = field(default_factory=dict[str, "JsonSchema | bool | None"])
    links: Mapping[str, Any] = field(default_factory=dict[str, Any])


class SecurityRequirement(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Security scheme that an operation requires, with its scopes."""

    scheme: str
    scopes: tuple[str, ...] = ()


class SecurityScheme(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Security scheme declared in the document."""

    name: str
    type: Literal["apiKey", "http", "oauth2", "openIdConnect", "mutualTLS"]
    location: Literal["query", "header", "cookie"] = "header"
    parameter: str = ""
    scheme: str = ""
    token_url: str | None = None
    flows: Mapping[str, Any] = field(default_factory=dict[str, Any])


class ApiOperation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One method on one path.

    `tool_name` is unique within the document and legal as the second part of a tool's
    name. `servers` are absolute URLs; the first is called. `security` lists alternatives,
    each a set of schemes required together; without alternatives no credential is sent.
    `definitions` are the schemas that parameters and body reference with `#/$defs/NAME`,
    `response_definitions` those of responses: requests exclude read-only properties and
    responses write-only ones, so one name may have two schemas.
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


class ApiDescription(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """API read from its documents: operations, security schemes and problems found.

    `files` are the paths of the other files that the API was read from.
    """

    title: str
    version: str
    operations: tuple[ApiOperation, ...]
    schemes: Mapping[str, SecurityScheme] = field(default_factory=dict[str, SecurityScheme])
    problems: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
