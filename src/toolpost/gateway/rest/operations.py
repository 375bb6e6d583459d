"""Operations of the REST interface: each declaration is the source of routing, validation and documentation."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

from msgspec import Struct, field
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from toolpost.contracts.callers import OWN_DATA, Caller
from toolpost.contracts.errors import ToolClientError, ToolError
from toolpost.contracts.jobs import RECORDED_S
from toolpost.contracts.outcomes import Outcome
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.gateway.access import CALLER, KeyUses, insufficient_scope
from toolpost.gateway.key_uses import writing_uses
from toolpost.gateway.metric_counting import counting_metrics
from toolpost.gateway.problems import Problem, ProblemResponse, problem_of
from toolpost.gateway.rest.components import resolve
from toolpost.gateway.rest.compression import compress
from toolpost.gateway.rest.tool_documents import ToolDocuments
from toolpost.gateway.source_changes import FROM_SIBLING, ChangedSources
from toolpost.processes.json_documents import measure
from toolpost.schema.json_size import MAX_INLINE_VALUES, SMALL
from toolpost.schema.validator import compile_validator
from toolpost.toolbox.engines import uses_workers
from toolpost.toolbox.views import SelectedTools

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

    from starlette.types import Receive, Scope, Send

    from toolpost.contracts.callers import CallerScope
    from toolpost.contracts.jobs import Stop
    from toolpost.contracts.spec import ToolSpec
    from toolpost.gateway.access import CallerLimits
    from toolpost.gateway.event_feed import EventFeed
    from toolpost.gateway.sessions import Sessions
    from toolpost.gateway.siblings import Siblings
    from toolpost.gateway.view_servers import ViewServers
    from toolpost.toolbox.box import Toolbox

JsonSchema: TypeAlias = Mapping[str, Any]
Handler: TypeAlias = Callable[["RestRequest"], Awaitable[Response]]
JSON_BYTES = 4_000_000
NOBODY = Caller("", Principal(LOCAL_TENANT, "nobody"), frozenset(), person=False)
"""The caller of an operation that needs no bearer."""
_BODY_S = 60.0
_CANCELLED_S = 5.0  # for cancelled calls to end


class Declaration(TypedDict, total=False):
    """Properties of an operation.

    A caller needs one of the scopes in `scope`. With `operator`, only the operator may use the operation, because it
    changes state that all tenants share. With `no_caller`, requests need no bearer. `answers` contains the responses:
    the status, and the JSON Schema of the body or its media type. `takes` is the schema of a JSON body, and `no_body`
    the default for a missing body. With `raw_body`, the body is a file.
    """

    scope: tuple[CallerScope, ...]
    operator: bool
    no_caller: bool
    query: Mapping[str, JsonSchema]
    headers: Mapping[str, JsonSchema]
    takes: JsonSchema
    no_body: Any
    raw_body: bool
    answers: Mapping[int, Any]
    problems: tuple[int, ...]


class Operations(list["Operation"]):
    """Operations with one tag, in the order of their declarations."""

    def __init__(self, tag: str) -> None:
        super().__init__()
        self._tag = tag

    def declare(self, method: str, path: str, **declared: Unpack[Declaration]) -> Callable[[Handler], Handler]:
        """Add the decorated handler as an operation: its name is the ID, and its docstring the summary."""

        def add(handler: Any) -> Handler:
            summary = (handler.__doc__ or "").partition("\n")[0].removesuffix(".")
            identity: Any = {"id": handler.__name__, "summary": summary, "tag": self._tag, "handler": handler}
            self.append(Operation(method=method, path=path, **identity, **declared))
            return handler  # type: ignore[no-any-return]

        return add


class Operation(Struct, frozen=True, kw_only=True, dict=True):
    """A REST operation; `Declaration` describes its properties."""

    id: str
    method: str
    path: str
    summary: str
    handler: Handler
    tag: str
    scope: tuple[CallerScope, ...] = ()
    operator: bool = False
    no_caller: bool = False
    query: Mapping[str, JsonSchema] = field(default_factory=dict[str, JsonSchema])
    headers: Mapping[str, JsonSchema] = field(default_factory=dict[str, JsonSchema])
    takes: JsonSchema | None = None
    no_body: Any = None
    raw_body: bool = False
    answers: Mapping[int, Any]
    problems: tuple[int, ...] = ()

    async def __call__(self, service: RestService, raw: Request) -> Response:
        """Validate a request against the declaration and call the handler; errors become problem details."""
        try:
            caller: Caller = NOBODY if self.no_caller else raw.scope[CALLER]
            self._check_caller(caller)
            self._check_headers(raw)
            return await self.handler(
                RestRequest(
                    service=service,
                    caller=caller,
                    path=raw.path_params,
                    query=self._read_query(raw),
                    body=await self._read_body(raw),
                    raw=raw,
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
            detail = (
                "this changes what all tenants share: use the operator's token or an `admin` key of the tenant `local`"
            )
            raise Problem(403, "operator_required", detail)

    def _check_headers(self, raw: Request) -> None:
        for name, schema in self.headers.items():
            text = raw.headers.get(name)
            if text is not None:
                _parse(name, text, schema)

    def _read_query(self, raw: Request) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name, text in raw.query_params.multi_items():
            schema = self.query.get(name)
            if schema is None:
                known = ", ".join(self.query) or "none"
                raise Problem(400, "unknown_parameter", f"unknown parameter {name!r}; valid parameters: {known}")
            if name in given:
                raise Problem(400, "repeated_parameter", f"the parameter {name!r} is repeated")
            given[name] = _parse(name, text, schema)
        return {name: schema["default"] for name, schema in self.query.items() if "default" in schema} | given

    async def _read_body(self, raw: Request) -> Any:
        if self.takes is None:
            return None
        has_body = raw.headers.get("content-length", "0") != "0" or "transfer-encoding" in raw.headers  # RFC 9112, 6.3
        if self.no_body is not None and not has_body:
            return self.no_body
        kind = raw.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Problem(415, "unsupported_media_type", "the body must be JSON: send `Content-Type: application/json`")
        try:
            value = json.loads(await read_json_body(raw), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            where = f": {error}" if isinstance(error, json.JSONDecodeError) else ""
            raise Problem(400, "malformed_json", f"the body is not valid JSON{where}") from None
        issues = self._validator.issues(value)
        if issues:
            raise Problem(422, "invalid_body", f"the body is invalid: {issues[0]}", errors=issues)
        return value

    @cached_property
    def _validator(self) -> Any:
        return compile_validator(resolve(self.takes or {}))


class RestRequest(Struct, frozen=True, kw_only=True):
    """A validated request to an operation; `raw` is the HTTP request."""

    service: RestService
    caller: Caller
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any
    raw: Request

    @property
    def box(self) -> Toolbox:
        """Shortcut for `service.box`."""
        return self.service.box

    @property
    def user(self) -> str:
        """The principal of the caller, as `tenant:user`."""
        return str(self.caller.principal)

    @property
    def tenant(self) -> str:
        """The tenant of the caller, the only one with data visible to it."""
        return self.caller.principal.tenant

    @property
    def tools(self) -> SelectedTools:
        """The tools that the caller can list and call."""
        return self.service.tools_for(self.caller)

    @property
    def only_user(self) -> str | None:
        """The user to whose runs, questions and artifacts a caller with only the scope `call` is limited, else None."""
        return self.caller.principal.user if self.caller.scopes <= OWN_DATA else None


class RestService:
    """State that the operations share: the Toolbox, the event feed, background calls and other workers.

    `siblings` are the other workers of the gateway; `changed_sources` were applied by them before this one started.
    `key_uses` contains the last use of each key in this process.
    """

    def __init__(
        self,
        box: Toolbox,
        feed: EventFeed,
        views: ViewServers,
        sessions: Sessions,
        *,
        limits: CallerLimits,
        public_url: str,
        siblings: Siblings | None = None,
        changed_sources: ChangedSources | None = None,
        key_uses: KeyUses | None = None,
    ) -> None:
        self.box = box
        self.sessions = sessions
        self.limits = limits
        self.siblings = siblings
        self._views = views
        self._all = SelectedTools(box, {})
        self._none = SelectedTools(box, {"where": _no_tool})
        self.feed = feed
        self.tools = ToolDocuments(box)
        self.key_uses = key_uses or KeyUses()
        self.public_url = public_url
        self.started_at = time.time()
        self._calls = set[asyncio.Task[Outcome]]()
        self.uploads = Counter[str]()  # bytes of files that are being uploaded, by caller
        self.changed_sources = changed_sources or ChangedSources()

    def tools_for(self, caller: Caller) -> SelectedTools:
        """Return the tools that a caller sees: with only the scope `call` those of the view at `/mcp`, else all."""
        if not caller.scopes <= OWN_DATA:
            return self._all
        view = self._views.default
        return view.tools if view.is_for(str(caller.principal)) else self._none

    @property
    def is_stopping(self) -> bool:
        """Whether the gateway is shutting down and rejects new calls."""
        return self.feed.is_closed

    async def request_siblings(self, raw: Request, value: Any = None) -> list[Any]:
        """Send the same request to the other workers, unless one of them sent it, and return their responses."""
        if self.siblings is None or raw.scope.get(FROM_SIBLING):
            return []
        return await self.siblings.broadcast(raw.method, raw.url.path, value)

    def start_call(self, call: Coroutine[None, None, Outcome]) -> asyncio.Task[Outcome]:
        """Run a call in a task that outlives its request."""
        task = asyncio.get_running_loop().create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Follow the event log for listeners; on exit, suspend or cancel the calls that still run."""
        store = self.box.store
        async with (
            self.feed.following(store.events),
            counting_metrics(store),
            writing_uses(self.key_uses, store),
            self._running_jobs() as stop_jobs,
        ):
            self.feed.on_close = stop_jobs
            try:
                yield
            finally:
                await self.box.router.park(within_s=0)
                await self.box.jobs.leave(within_s=RECORDED_S)
                if self._calls:
                    await asyncio.wait(self._calls, timeout=_CANCELLED_S)

    @asynccontextmanager
    async def _running_jobs(self) -> AsyncGenerator[Stop]:
        """Run background work in this process, unless workers do."""
        if uses_workers(self.box.settings):
            yield lambda: None
            return
        async with self.box.engine.run(self.box.jobs) as stop:
            yield stop


def _no_tool(_spec: ToolSpec) -> bool:
    return False


class Resource:
    """ASGI application of one path; methods without an operation get 405."""

    def __init__(self, service: RestService, methods: Mapping[str, Operation]) -> None:
        self._service = service
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = Request(scope, receive, send)
        operation = self._methods.get("GET" if raw.method == "HEAD" else raw.method)
        if operation is None:
            allowed = {"Allow": ", ".join(self._methods)}
            detail = f"this path does not support {raw.method}"
            response: Response = ProblemResponse(405, "method_not_allowed", detail, headers=allowed)
        else:
            response = await compress(raw, await operation(self._service, raw))
        await response(scope, receive, send)


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _parse(name: str, text: str, schema: JsonSchema) -> Any:
    """Return a parameter as a value of its schema's type."""
    value: Any = text
    with suppress(ValueError):
        if schema["type"] == "integer" and text.isascii() and text.lstrip("-").isdigit():
            value = int(text)
        elif schema["type"] == "number":
            value = float(text) if math.isfinite(float(text)) else text
    issues = compile_validator(dict(schema)).issues(value)
    if issues:
        raise Problem(400, "invalid_parameter", f"the parameter {name!r} is invalid: {issues[0].removeprefix('$: ')}")
    return value


async def read_json_body(raw: Request) -> bytes:
    """Read a JSON body within the limits on bytes, values and depth."""
    body = await read_body(raw, JSON_BYTES)
    if len(body) > SMALL:
        try:
            await measure(body, MAX_INLINE_VALUES)
        except ToolClientError as error:
            raise Problem(413, error.error_code, error.message) from None
    return body


async def read_body(raw: Request, most: int) -> bytes:
    """Read a body of at most `most` bytes within a minute."""
    length = raw.headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise _too_large(most)
    chunks, size = list[bytes](), 0
    try:
        async with asyncio.timeout(_BODY_S):
            async for chunk in raw.stream():
                size += len(chunk)
                if size > most:
                    raise _too_large(most)
                chunks.append(chunk)
    except TimeoutError:
        raise Problem(408, "body_too_slow", "the body did not arrive in time") from None
    return b"".join(chunks)


def _too_large(most: int) -> Problem:
    return Problem(413, "body_too_large", f"the body has more than {most} bytes")


class JsonResponse(Response):
    """A response with any JSON value, including NaN and lone surrogates from tools."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json_bytes(content)


def json_bytes(value: Any) -> bytes:
    """Encode a value as JSON; escape lone surrogates, and replace NaN and infinity by null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str).encode()
    except (ValueError, UnicodeEncodeError):
        text = json.dumps(value, default=str)
        return json.dumps(json.loads(text, parse_constant=lambda _: None), separators=(",", ":")).encode()
