"""The tools http_get, http_post and http_request."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from toolpost.catalog.function import FunctionTool, tool
from toolpost.contracts.spec import ToolCategory
from toolpost.http.content import decode_text, parse_media_type
from toolpost.http.response_errors import status_phrase
from toolpost.policy.untrusted import mark_untrusted
from toolpost.schema.hidden_text import clean_text
from toolpost.schema.pydantic_types import schema_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.builtin.web_client import WebClient, WebResponse
    from toolpost.contracts.calls import ToolOutput

Url = Annotated[str, Field(min_length=1, max_length=8192, description="An http or https URL of a public address")]
TAGS = ("builtin", "network")
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
HeaderFields = Annotated[dict[str, str], Field(description="Header fields to send")]
Body = Annotated[
    str | dict[str, Any] | list[Any] | None,
    Field(description="A text is sent unchanged, other values as JSON"),
]
_NO_HEADERS: dict[str, str] = {}


class HttpResult(TypedDict):
    """A response of any status; a binary `body` is base64, as `encoding` says."""

    url: str
    method: str
    status: int
    status_text: str
    headers: dict[str, str]
    body: str
    encoding: Literal["text", "base64"]


def read_tool(
    result: type,
    *,
    timeout_s: float,
    category: ToolCategory = ToolCategory.NETWORK,
    host_argument: str | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]:
    """Return the decorator of a tool that only reads from the network and returns this type of result."""
    return tool(
        side_effects="read",
        network=True,
        open_world=True,
        category=category,
        tags=TAGS,
        timeout_s=timeout_s,
        output_schema=schema_of(TypeAdapter(result), "serialization"),
        host_argument=host_argument,
    )


def _send_tool(web: WebClient) -> Callable[[Callable[..., Any]], FunctionTool]:
    return tool(
        side_effects="external",
        open_world=True,
        destructive=True,  # it sends arbitrary data to arbitrary addresses
        category=ToolCategory.NETWORK,
        tags=TAGS,
        timeout_s=web.timeout_s,
        output_schema=schema_of(TypeAdapter(HttpResult), "serialization"),
        host_argument="url",
    )


def http_tools(web: WebClient) -> list[FunctionTool]:
    """Return the HTTP tools over one guarded client."""

    @read_tool(HttpResult, timeout_s=web.timeout_s, host_argument="url")
    async def http_get(url: Url, *, headers: HeaderFields = _NO_HEADERS) -> ToolOutput:
        """Send a GET request to a URL and return the response of any status; at most three redirects are followed."""
        return _http_output("GET", await web.send("GET", url, headers=headers))

    @_send_tool(web)
    async def http_post(url: Url, *, body: Body = None, headers: HeaderFields = _NO_HEADERS) -> ToolOutput:
        """Send a POST request, by default as JSON, and return the response of any status."""
        return await _send(web, "POST", url, body, headers)

    @_send_tool(web)
    async def http_request(
        method: Annotated[Method, Field(description="The HTTP method")],
        url: Url,
        *,
        body: Body = None,
        headers: HeaderFields = _NO_HEADERS,
    ) -> ToolOutput:
        """Send an HTTP request and return the response of any status; GET and HEAD follow at most three redirects."""
        return await _send(web, method, url, body, headers)

    return [http_get, http_post, http_request]


async def _send(web: WebClient, method: str, url: str, body: Any, headers: dict[str, str]) -> ToolOutput:
    data, fields = None, headers
    if body is not None:
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        data = text.encode("utf-8", "replace")
        named = any(name.lower() == "content-type" for name in headers)
        fields = headers if named else {**headers, "Content-Type": "application/json"}
    return _http_output(method, await web.send(method, url, headers=fields, body=data))


def _http_output(method: str, response: WebResponse) -> ToolOutput:
    body, encoding = _body_text(response)
    clean = clean_text(body)
    content = HttpResult(
        url=response.url,
        method=method,
        status=response.status,
        status_text=status_phrase(response.status),
        headers=_header_fields(response),
        body=clean.text,
        encoding=encoding,
    )
    return mark_untrusted(
        content, origin=response.url, facts={"status": response.status, "hidden_characters": clean.hidden}
    )


def _body_text(response: WebResponse) -> tuple[str, Literal["text", "base64"]]:
    kind = parse_media_type(response.content_type)
    if kind.kind not in ("binary", "multipart"):
        return decode_text(response.body, kind.charset), "text"
    if not kind.essence and b"\0" not in response.body:
        return decode_text(response.body), "text"
    return base64.b64encode(response.body).decode(), "base64"


def _header_fields(response: WebResponse) -> dict[str, str]:
    """Return header fields by lower-case name; repeated fields are joined (RFC 9110, section 5.3)."""
    fields: dict[str, str] = {}
    for name, value in response.headers:
        key, shown = name.lower(), clean_text(value).text
        fields[key] = f"{fields[key]}, {shown}" if key in fields else shown
    return fields
