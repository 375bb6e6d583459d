"""Tools that send HTTP requests: http_get, http_post and http_request, all through the guard."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from toolpost.catalog.function import FunctionTool, tool
from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.spec import ToolCategory
from toolpost.schema.generation import schema_of
from toolpost.schema.hidden_text import visible
from toolpost.web.contents import decoded
from toolpost.web.failures import phrase_of
from toolpost.web.media_types import media_type
from toolpost.web.untrusted import from_outside

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.builtin.web_access import Answer, Web
    from toolpost.contracts.spec import JsonSchema

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
Url = Annotated[str, Field(min_length=1, max_length=8192, description="An http or https URL of a public address")]
HeaderFields = Annotated[dict[str, str], Field(description="Header fields to send")]
Body = Annotated[
    str | dict[str, Any] | list[Any] | None,
    Field(description="What to send: a text as it is, anything else as JSON"),
]

TAGS = ("builtin", "network")
_NO_HEADERS: dict[str, str] = {}


class HttpAnswer(TypedDict):
    """An answer, whatever its status; a `body` that is no text is in base64, as `encoding` says."""

    url: str
    method: str
    status: int
    status_text: str
    headers: dict[str, str]
    body: str
    encoding: Literal["text", "base64"]


_ANSWER = schema_of(TypeAdapter(HttpAnswer), "serialization")


def looking(
    answer: JsonSchema,
    *,
    timeout_s: float,
    category: ToolCategory = ToolCategory.NETWORK,
    host_argument: str | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]:
    """What declares a tool that only looks at what is elsewhere."""
    return tool(
        side_effects="read",
        network=True,
        open_world=True,
        category=category,
        tags=TAGS,
        timeout_s=timeout_s,
        output_schema=answer,
        host_argument=host_argument,
    )


def _sending(web: Web) -> Callable[[Callable[..., Any]], FunctionTool]:
    return tool(
        side_effects="external",
        destructive=True,  # it sends whatever it is given to wherever it is told
        category=ToolCategory.NETWORK,
        tags=TAGS,
        timeout_s=web.timeout_s,
        output_schema=_ANSWER,
        host_argument="url",
    )


def http_tools(web: Web) -> list[FunctionTool]:
    """The tools of this module over one guarded client."""
    return [_http_get(web), _http_post(web), _http_request(web)]


def _http_get(web: Web) -> FunctionTool:
    @looking(_ANSWER, timeout_s=web.timeout_s, host_argument="url")
    async def http_get(url: Url, *, headers: HeaderFields = _NO_HEADERS) -> ToolOutput:
        """Get what is at a URL. Any status is an answer; redirects are followed, at most three."""
        return _output("GET", await web.ask("GET", url, headers=headers))

    return http_get


def _http_post(web: Web) -> FunctionTool:
    @_sending(web)
    async def http_post(url: Url, *, body: Body = None, headers: HeaderFields = _NO_HEADERS) -> ToolOutput:
        """Post something to a URL, as JSON unless a Content-Type says otherwise. Any status is an answer."""
        return await _sent(web, "POST", url, body, headers)

    return http_post


def _http_request(web: Web) -> FunctionTool:
    @_sending(web)
    async def http_request(
        method: Annotated[Method, Field(description="The HTTP method")],
        url: Url,
        *,
        body: Body = None,
        headers: HeaderFields = _NO_HEADERS,
    ) -> ToolOutput:
        """Send an HTTP request. Any status is an answer; only GET and HEAD follow redirects, at most three."""
        return await _sent(web, method, url, body, headers)

    return http_request


async def _sent(web: Web, method: str, url: str, body: Any, headers: dict[str, str]) -> ToolOutput:
    data, fields = None, headers
    if body is not None:
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        data = text.encode("utf-8", "replace")
        named = any(name.lower() == "content-type" for name in headers)
        fields = headers if named else {**headers, "Content-Type": "application/json"}
    return _output(method, await web.ask(method, url, headers=fields, body=data))


def _output(method: str, answer: Answer) -> ToolOutput:
    body, encoding = _readable(answer)
    seen = visible(body)
    content = HttpAnswer(
        url=answer.url,
        method=method,
        status=answer.status,
        status_text=phrase_of(answer.status),
        headers=_fields(answer),
        body=seen.text,
        encoding=encoding,
    )
    return from_outside(content, origin=answer.url, facts={"status": answer.status, "hidden_characters": seen.hidden})


def _readable(answer: Answer) -> tuple[str, Literal["text", "base64"]]:
    kind = media_type(answer.content_type)
    if kind.kind not in ("binary", "multipart"):
        return decoded(answer.body, kind.charset), "text"
    if not kind.essence and b"\0" not in answer.body:
        return decoded(answer.body), "text"
    return base64.b64encode(answer.body).decode(), "base64"


def _fields(answer: Answer) -> dict[str, str]:
    """The fields by their names in lower case; those that came more than once are joined, as RFC 9110 has it."""
    fields: dict[str, str] = {}
    for name, value in answer.headers:
        key, shown = name.lower(), visible(value).text
        fields[key] = f"{fields[key]}, {shown}" if key in fields else shown
    return fields
