"""Operations of the REST interface: declared once, then routed, checked and described from that declaration."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct, field
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from toolpost.contracts.errors import ToolClientError, ToolError
from toolpost.gateway.access import CALLER, insufficient_scope
from toolpost.gateway.problems import Problem, problem_of
from toolpost.gateway.rest.schemas import resolve
from toolpost.processes.json_documents import measure
from toolpost.schema.json_size import MAX_INLINE_VALUES, SMALL
from toolpost.schema.validator import compile_validator

if TYPE_CHECKING:
    from toolpost.contracts.callers import Caller, CallerScope
    from toolpost.gateway.rest.service import RestService
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.views import SelectedTools

T = TypeVar("T")
JsonSchema: TypeAlias = Mapping[str, Any]
JSON_BYTES = 4_000_000
_BODY_S = 60.0

LIMIT: JsonSchema = {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}
CURSOR: JsonSchema = {"type": "string", "description": "The `next` of the page before"}


class JsonResponse(Response):
    """A response with any JSON value, whatever odd text or number a tool put into it."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json_bytes(content)


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON; half characters are escaped, and numbers that JSON does not have become null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str).encode()
    except (ValueError, UnicodeEncodeError):
        text = json.dumps(value, default=str)
        return json.dumps(json.loads(text, parse_constant=lambda _: None), separators=(",", ":")).encode()


class RestRequest(Struct, frozen=True, kw_only=True):
    """A request to an operation: who sends it, and its parts as they fit the declaration."""

    service: RestService
    caller: Caller
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any
    raw: Request

    @property
    def box(self) -> Toolbox:
        """The Toolbox that is served."""
        return self.service.box

    @property
    def user(self) -> str:
        """For whom the request is, as `tenant:user`."""
        return str(self.caller.principal)

    @property
    def tenant(self) -> str:
        """The tenant whose data the request may see."""
        return self.caller.principal.tenant

    @property
    def tools(self) -> SelectedTools:
        """The tools that the caller sees and can call."""
        return self.service.tools_for(self.caller)

    @property
    def only_user(self) -> str | None:
        """The user whose runs, questions and artifacts the caller sees: its own, if it can do no more than call."""
        return self.caller.principal.user if self.caller.scopes <= {"call"} else None


Handler: TypeAlias = Callable[[RestRequest], Awaitable[Response]]


class Operation(Struct, frozen=True, kw_only=True, dict=True):
    """An operation of the interface.

    `scope` is what a caller needs, any one of them. `operator` says that only the operator may use it: it changes what
    all tenants share. `answers` are the responses: a status, and the schema of its JSON or a media type. `takes` is the
    schema of a JSON body, and `no_body` what stands for one that is missing, if it may be; `raw_body` says that the
    body is a file.
    """

    id: str
    method: str
    path: str
    summary: str
    handler: Handler
    tag: str
    scope: tuple[CallerScope, ...] = ()
    operator: bool = False
    query: Mapping[str, JsonSchema] = field(default_factory=dict[str, JsonSchema])
    headers: Mapping[str, JsonSchema] = field(default_factory=dict[str, JsonSchema])
    takes: JsonSchema | None = None
    no_body: Any = None
    raw_body: bool = False
    answers: Mapping[int, Any]
    problems: tuple[int, ...] = ()

    async def __call__(self, service: RestService, request: Request) -> Response:
        """Check a request against the declaration and carry it out; a refusal is a problem."""
        try:
            caller: Caller = request.scope[CALLER]
            self._check_caller(caller)
            self._check_headers(request)
            return await self.handler(
                RestRequest(
                    service=service,
                    caller=caller,
                    path=request.path_params,
                    query=self._read_query(request),
                    body=await self._read_body(request),
                    raw=request,
                )
            )
        except Problem as problem:
            return problem.response()
        except ToolError as error:
            error.conceal(service.box.redactor.message)
            return problem_of(error)
        except ClientDisconnect:
            return Response(status_code=400)

    def _check_caller(self, caller: Caller) -> None:
        if self.scope and not caller.scopes.intersection(self.scope):
            raise insufficient_scope(*self.scope)
        if self.operator and not caller.is_operator:
            detail = "all tenants share this: it takes the operator's token or an `admin` key of the tenant `local`"
            raise Problem(403, "operator_required", detail)

    def _check_headers(self, request: Request) -> None:
        for name, schema in self.headers.items():
            text = request.headers.get(name)
            if text is not None:
                _parse(name, text, schema)

    def _read_query(self, request: Request) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name, text in request.query_params.multi_items():
            schema = self.query.get(name)
            if schema is None:
                known = ", ".join(self.query) or "none"
                raise Problem(400, "unknown_parameter", f"there is no parameter {name!r} here; there are: {known}")
            if name in given:
                raise Problem(400, "repeated_parameter", f"the parameter {name!r} is given twice")
            given[name] = _parse(name, text, schema)
        return {name: schema["default"] for name, schema in self.query.items() if "default" in schema} | given

    async def _read_body(self, request: Request) -> Any:
        if self.takes is None:
            return None
        if self.no_body is not None and _has_no_body(request):
            return self.no_body
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Problem(415, "unsupported_media_type", "the body must be JSON: send `Content-Type: application/json`")
        try:
            value = json.loads(await read_json_body(request), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            where = f": {error}" if isinstance(error, json.JSONDecodeError) else ""
            raise Problem(400, "malformed_json", f"the body is no JSON{where}") from None
        issues = self._validator.issues(value)
        if issues:
            raise Problem(422, "invalid_body", f"the body does not fit: {issues[0]}", errors=issues)
        return value

    @cached_property
    def _validator(self) -> Any:
        return compile_validator(resolve(self.takes or {}))


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _parse(name: str, text: str, schema: JsonSchema) -> Any:
    """Return a parameter as its schema has it."""
    value: Any = text
    with suppress(ValueError):
        if schema["type"] == "integer" and text.isascii() and text.lstrip("-").isdigit():
            value = int(text)
        elif schema["type"] == "number":
            value = float(text)
    issues = compile_validator(dict(schema)).issues(value)
    if issues:
        raise Problem(400, "invalid_parameter", f"the parameter {name!r} does not fit: {issues[0].removeprefix('$: ')}")
    return value


def _has_no_body(request: Request) -> bool:
    """Return whether a request comes without a body (RFC 9112, 6.3)."""
    return request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers


async def read_json_body(request: Request) -> bytes:
    """Read a body of JSON that may be decoded here: within the limits on its bytes, values and depth."""
    body = await read_body(request, JSON_BYTES)
    if len(body) > SMALL:
        try:
            await measure(body, MAX_INLINE_VALUES)
        except ToolClientError as error:
            raise Problem(413, error.error_code, error.message) from None
    return body


async def read_body(request: Request, most: int) -> bytes:
    """Read a body of at most so many bytes; it must come within a minute."""
    too_large = Problem(413, "body_too_large", f"the body has more than {most} bytes")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise too_large
    chunks, size = list[bytes](), 0
    try:
        async with asyncio.timeout(_BODY_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most:
                    raise too_large
                chunks.append(chunk)
    except TimeoutError:
        raise Problem(408, "body_too_slow", "the body did not come in time") from None
    return b"".join(chunks)


def encode_cursor(position: str) -> str:
    """Return a position as an opaque cursor."""
    return base64.urlsafe_b64encode(position.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> str | None:
    """Return the position of a cursor; a problem where it was made up."""
    if cursor is None:
        return None
    try:
        position = base64.b64decode(f"{cursor}{'=' * (-len(cursor) % 4)}", altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise Problem(400, "invalid_cursor", "the cursor is none of those that were given out") from None
    return position


def page_of(ask: RestRequest, items: Sequence[T], key: Callable[[T], str], show: Callable[[T], Any]) -> JsonResponse:
    """Return the page of a list that the cursor and the limit of a request ask for."""
    after, limit = decode_cursor(ask.query.get("cursor")), ask.query["limit"]
    begin = 0
    if after is not None:
        begin = next((at for at, item in enumerate(items, 1) if key(item) == after), -1)
        if begin < 0:
            raise invalid_cursor()
    return page_response(items[begin : begin + limit + 1], limit, key, show)


def invalid_cursor() -> Problem:
    """Return the problem of a cursor that points at what is not there, or not for this caller."""
    return Problem(400, "invalid_cursor", "what the cursor points at is gone; begin with the first page")


def page_response(found: Sequence[T], limit: int, key: Callable[[T], str], show: Callable[[T], Any]) -> JsonResponse:
    """Return a page of items, with the cursor of the next one where one more was found than the page has."""
    last = key(found[limit - 1]) if len(found) > limit else None
    shown = [show(item) for item in found[:limit]]
    return JsonResponse({"items": shown, "next": None if last is None else encode_cursor(last)})
