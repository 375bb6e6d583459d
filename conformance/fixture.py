"""The server under test: every tool, resource and prompt that the suite's server scenarios call for.

`python -m conformance.fixture` serves it directly, with the gateway's own HTTP endpoint and tasks, and prints where;
with `--through-gateway` it serves the gateway in front of it.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import secrets
import signal
import struct
import sys
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, SetLevelRequestParams
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from toolpost import Settings, Toolbox
from toolpost.configuration.settings import ViewSettings
from toolpost.gateway.mcp.http import McpEndpoint
from toolpost.gateway.mcp.progress import ProgressRelay
from toolpost.gateway.mcp.requests import CallTool
from toolpost.gateway.mcp.server import McpServer
from toolpost.gateway.mcp.tasks import McpTask, Tasks, knows_tasks, missing_tasks
from toolpost.gateway.views import View
from toolpost.wire.http_server import listen, serve_until_stopped

Context = ServerRequestContext[Any, Any]
Result = dict[str, Any]
Handler = Callable[["Call"], Awaitable[Result]]

KEY = secrets.token_bytes(32)
COMPLETE = {"resultType": "complete"}
CACHED = {"ttlMs": 60_000, "cacheScope": "private", **COMPLETE}
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def png() -> str:
    """A picture of one red pixel, in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header, pixel = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0), zlib.compress(b"\0\xff\0\0")
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
    return base64.b64encode(whole).decode()


def wav() -> str:
    """A sound of eight silent samples, in base64."""
    body = struct.pack("<4sIHHIIHH4sI", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8, b"data", 8) + b"\x80" * 8
    return base64.b64encode(b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body).decode()


def text(said: str, *, failed: bool = False) -> Result:
    """A result of one text."""
    return {"content": [{"type": "text", "text": said}], "isError": failed}


def form(message: str, **fields: Mapping[str, Any]) -> Result:
    """A request to the client's user."""
    schema = {
        "type": "object",
        "properties": fields,
        "required": [one for one in fields if "default" not in fields[one]],
    }
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(question: str, most: int) -> Result:
    """A request to the client's model."""
    message = {"role": "user", "content": {"type": "text", "text": question}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": most}}


ROOTS: Result = {"method": "roots/list", "params": {}}
STRING, BOOLEAN = {"type": "string"}, {"type": "boolean"}


class Call:
    """One call of a tool, or one request for a prompt, with what its client sent."""

    def __init__(self, fixture: "Fixture", ctx: Context, params: Any) -> None:
        self.fixture = fixture
        self.ctx = ctx
        self.arguments: dict[str, Any] = params.arguments or {}
        self.responses: dict[str, Any] = _plain(params.input_responses) or {}
        self.state: str | None = params.request_state
        self.is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        self.task: McpTask | None = None

    async def ask(self, then: Callable[[dict[str, Any]], Result], **requests: Result) -> Result:
        """Ask the client, in the way of its protocol, and go on with all responses."""
        if self.task is not None:
            return then(await self.task.request_input(requests))
        if self.is_modern:
            if requests.keys() <= self.responses.keys():
                return then({key: self.responses[key] for key in requests})
            return {"resultType": "input_required", "inputRequests": requests}
        session = self.ctx.session
        sent = [self._send(session, request) for request in requests.values()]
        return then(dict(zip(requests, await asyncio.gather(*sent), strict=True)))

    async def _send(self, session: Any, request: Result) -> Result:
        """Send a request to a client of the older protocol, on the stream of this call."""
        outbound = session._request_outbound  # noqa: SLF001 - the fixture speaks plain JSON
        answered: Result = await outbound.send_raw_request(request["method"], request["params"])
        return answered

    async def log(self, said: str) -> None:
        """Send a line of the log, if the client wants lines of this level."""
        session: Any = self.ctx.session
        notify = session._request_outbound.notify  # noqa: SLF001 - the fixture speaks plain JSON
        wanted: Any = (self.ctx.meta or {}).get("io.modelcontextprotocol/logLevel") if self.is_modern else "info"
        if wanted in LEVELS and LEVELS.index(wanted) <= LEVELS.index("info"):
            await notify("notifications/message", {"level": "info", "logger": "fixture", "data": said})

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the client says it can do."""
        known = self.ctx.session.client_capabilities
        return {} if known is None else known.model_dump(by_alias=True, mode="json", exclude_none=True)


def _plain(given: Any) -> Any:
    if isinstance(given, Mapping):
        return {key: _plain(value) for key, value in given.items()}  # pyright: ignore[reportUnknownVariableType]
    return given.model_dump(by_alias=True, mode="json", exclude_none=True) if hasattr(given, "model_dump") else given


# ---------------------------------------------------------------- tools

TOOLS: dict[str, tuple[Handler, Result]] = {}
TASK_TOOLS: dict[str, bool] = {}  # by name, whether they run as a task only


def tool(properties: Mapping[str, Any] | None = None, *, task: bool | None = None) -> Callable[[Handler], Handler]:
    """Add a tool under its function's name; `task` says that it can run as a task, True that it must."""

    def add(handler: Handler) -> Handler:
        schema: Result = {"type": "object", "properties": dict(properties or {})}
        definition = {"name": handler.__name__, "description": handler.__doc__, "inputSchema": schema}
        TOOLS[handler.__name__] = handler, definition
        if task is not None:
            TASK_TOOLS[handler.__name__] = task
        return handler

    return add


@tool()
async def test_simple_text(call: Call) -> Result:
    """Return a text."""
    return text("This is a simple text response for testing.")


@tool()
async def test_image_content(call: Call) -> Result:
    """Return a picture."""
    return {"content": [{"type": "image", "data": png(), "mimeType": "image/png"}]}


@tool()
async def test_audio_content(call: Call) -> Result:
    """Return a sound."""
    return {"content": [{"type": "audio", "data": wav(), "mimeType": "audio/wav"}]}


EMBEDDED = {
    "uri": "test://embedded-resource",
    "mimeType": "text/plain",
    "text": "This is an embedded resource content.",
}
MIXED = {"uri": "test://mixed-content-resource", "mimeType": "application/json", "text": '{"test":"data","value":123}'}


@tool()
async def test_embedded_resource(call: Call) -> Result:
    """Return a resource inside the result."""
    return {"content": [{"type": "resource", "resource": EMBEDDED}]}


@tool()
async def test_multiple_content_types(call: Call) -> Result:
    """Return a text, a picture and a resource."""
    words = {"type": "text", "text": "Multiple content types test:"}
    picture = {"type": "image", "data": png(), "mimeType": "image/png"}
    return {"content": [words, picture, {"type": "resource", "resource": MIXED}]}


@tool()
async def test_tool_with_logging(call: Call) -> Result:
    """Write three lines to the log."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await call.log(line)
        await asyncio.sleep(0.05)
    return text("Tool with logging executed successfully")


@tool()
async def test_logging_tool(call: Call) -> Result:
    """Write a line to the log, for clients that asked for lines."""
    await call.log("logged")
    return text("logged")


@tool()
async def test_error_handling(call: Call) -> Result:
    """Fail."""
    return text("This tool intentionally returns an error for testing", failed=True)


@tool()
async def test_tool_with_progress(call: Call) -> Result:
    """Tell how far it is."""
    for done in (0, 50, 100):
        await call.ctx.session.report_progress(done, 100)
        await asyncio.sleep(0.06)
    return text("Tool with progress executed successfully")


@tool({"prompt": STRING})
async def test_sampling(call: Call) -> Result:
    """Ask the client's model."""

    def tell(given: dict[str, Any]) -> Result:
        return text(f"LLM response: {given['answer']['content']['text']}")

    return await call.ask(tell, answer=sampling(str(call.arguments.get("prompt")), 100))


@tool({"message": STRING})
async def test_elicitation(call: Call) -> Result:
    """Ask the client's user for a name and an address."""
    username = {"type": "string", "description": "User's response"}
    email = {"type": "string", "description": "User's email address"}
    asked = form(str(call.arguments.get("message")), username=username, email=email)
    return await call.ask(lambda given: text(f"User response: {json.dumps(given['answer'])}"), answer=asked)


def _elicited(given: dict[str, Any]) -> Result:
    reply = given["answer"]
    return text(f"Elicitation completed: action={reply['action']}, content={json.dumps(reply.get('content'))}")


@tool()
async def test_elicitation_sep1034_defaults(call: Call) -> Result:
    """Ask the client's user with a form that has defaults."""
    status = {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"}
    asked = form(
        "Please review these fields",
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status=status,
        verified={"type": "boolean", "default": True},
    )
    return await call.ask(_elicited, answer=asked)


@tool()
async def test_elicitation_sep1330_enums(call: Call) -> Result:
    """Ask the client's user with a form of every kind of choice."""
    titled = [{"const": "value1", "title": "First Option"}, {"const": "value2", "title": "Second Option"}]
    plain = {"type": "string", "enum": ["option1", "option2", "option3"]}
    names = ["Option One", "Option Two", "Option Three"]
    asked = form(
        "Please choose",
        untitledSingle=plain,
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum={"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
        untitledMulti={"type": "array", "items": plain},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
    )
    return await call.ask(_elicited, answer=asked)


@tool()
async def test_reconnection(call: Call) -> Result:
    """Close the stream of this call, so that its client comes back for the result."""
    await asyncio.sleep(0.05)
    if call.ctx.close_sse_stream is not None:
        await call.ctx.close_sse_stream()
    await asyncio.sleep(0.1)
    return text("Reconnection test completed")


@tool({"region": {"type": "string", "x-mcp-header": "Region"}})
async def test_custom_header(call: Call) -> Result:
    """Take an argument that is also sent as a header."""
    return text(f"region: {call.arguments.get('region')}")


@tool()
async def test_missing_capability(call: Call) -> Result:
    """Need a client with a model."""
    if "sampling" not in call.capabilities:
        missing: Result = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(code=MISSING_REQUIRED_CLIENT_CAPABILITY, message="sampling is needed", data=missing)
    return text("the client has a model")


@tool()
async def test_streaming_elicitation(call: Call) -> Result:
    """Ask the client's user, with progress before."""
    await call.ctx.session.report_progress(1, 2)
    return await call.ask(_elicited, answer=form("Go on?", confirm=BOOLEAN))


@tool()
async def test_trigger_tool_change(call: Call) -> Result:
    """Add a tool, or take it away again."""
    await call.fixture.change("tools")
    return text("the tools have changed")


@tool()
async def test_trigger_prompt_change(call: Call) -> Result:
    """Add a prompt, or take it away again."""
    await call.fixture.change("prompts")
    return text("the prompts have changed")


# ---------------------------------------------------------------- tools that need input, in the newer protocol


def signed(said: str) -> str:
    """A state that nobody else can make."""
    return f"{said}.{hmac.new(KEY, said.encode(), hashlib.sha256).hexdigest()}"


def checked(state: str | None) -> str:
    """What a state says; MCPError for one that was made up."""
    said, _, _ = (state or "").rpartition(".")
    if not hmac.compare_digest(signed(said), state or ""):
        raise MCPError(code=INVALID_PARAMS, message="the requestState is not one of this server")
    return said


NAME = form("What is your name?", name=STRING)


def _name_of(reply: Any) -> str:
    if not isinstance(reply, Mapping) or not isinstance(reply.get("content"), Mapping):  # pyright: ignore[reportUnknownMemberType]
        raise MCPError(code=INVALID_PARAMS, message="a response must have content")
    return str(reply["content"]["name"])  # pyright: ignore[reportUnknownArgumentType]


@tool()
async def test_input_required_result_elicitation(call: Call) -> Result:
    """Ask for a name, and greet."""
    return await call.ask(lambda given: text(f"Hello, {_name_of(given['user_name'])}!"), user_name=NAME)


@tool()
async def test_input_required_result_sampling(call: Call) -> Result:
    """Ask the client's model for a capital."""
    asked = sampling("What is the capital of France?", 100)
    return await call.ask(lambda given: text(given["capital_question"]["content"]["text"]), capital_question=asked)


@tool()
async def test_input_required_result_list_roots(call: Call) -> Result:
    """Ask for the client's folders."""
    return await call.ask(lambda given: text(json.dumps(given["client_roots"]["roots"])), client_roots=ROOTS)


@tool()
async def test_input_required_result_request_state(call: Call) -> Result:
    """Keep a state while the client's user confirms."""
    if "confirm" in call.responses:
        return text(f"state-ok: {checked(call.state)}")
    return _required("asked", confirm=form("Please confirm", ok=BOOLEAN))


@tool()
async def test_input_required_result_tampered_state(call: Call) -> Result:
    """Refuse a state that was changed."""
    return await test_input_required_result_request_state(call)


def _required(state: str, **requests: Result) -> Result:
    return {"resultType": "input_required", "inputRequests": requests, "requestState": signed(state)}


@tool()
async def test_input_required_result_multiple_inputs(call: Call) -> Result:
    """Ask the client's user, model and folders at once."""
    asked = {"user_name": NAME, "greeting": sampling("Generate a greeting", 50), "client_roots": ROOTS}
    if not asked.keys() <= call.responses.keys():
        return _required("several", **asked)
    checked(call.state)
    return text(f"{call.responses['greeting']['content']['text']} {_name_of(call.responses['user_name'])}")


@tool()
async def test_input_required_result_multi_round(call: Call) -> Result:
    """Ask twice, one question after the other."""
    if "step2" in call.responses:
        return text(f"{checked(call.state)} likes {call.responses['step2']['content']['color']}")
    if "step1" in call.responses:
        checked(call.state)
        asked = form("Step 2: What is your favorite color?", color=STRING)
        return _required(_name_of(call.responses["step1"]), step2=asked)
    return _required("nobody", step1=form("Step 1: What is your name?", name=STRING))


@tool()
async def test_input_required_result_capabilities(call: Call) -> Result:
    """Ask only what the client can answer."""
    asked = {"elicitation": ("user_name", NAME), "sampling": ("greeting", sampling("Generate a greeting", 50))}
    offered = dict(asked[one] for one in asked if one in call.capabilities)
    return await call.ask(lambda given: text(json.dumps(given)), **offered)


# ---------------------------------------------------------------- tools that run as tasks


@tool({"name": STRING})
async def greet(call: Call) -> Result:
    """Greet, at once."""
    return text(f"Hello, {call.arguments.get('name')}!")


@tool({"seconds": {"type": "number"}, "label": STRING}, task=False)
async def slow_compute(call: Call) -> Result:
    """Take a while."""
    call.fixture.computing += 1
    try:
        await asyncio.sleep(float(call.arguments.get("seconds", 0)))
    finally:
        call.fixture.computing -= 1
    return text(f"computed {call.arguments.get('label')}")


@tool(task=True)
async def failing_job(call: Call) -> Result:
    """Take a second, and fail."""
    await asyncio.sleep(1)
    return text("the job failed", failed=True)


@tool(task=False)
async def protocol_error_job(call: Call) -> Result:
    """Break the protocol."""
    raise MCPError(code=INTERNAL_ERROR, message="the job broke")


@tool({"filename": STRING}, task=False)
async def confirm_delete(call: Call) -> Result:
    """Ask before a file is deleted."""
    asked = form(f"Delete {call.arguments.get('filename')}?", confirm=BOOLEAN)
    return await call.ask(lambda given: text(json.dumps(given)), confirmation=asked)


@tool(task=False)
async def multi_input(call: Call) -> Result:
    """Ask two things at once."""
    first, second = form("First?", name=STRING), form("Second?", name=STRING)
    return await call.ask(lambda given: text(json.dumps(given)), first=first, second=second)


@tool()
async def test_tool_with_task(call: Call) -> Result:
    """Ask for a name first, then greet in a task."""
    if not knows_tasks(call.ctx):
        raise missing_tasks()
    if "user_name" not in call.responses:
        return _required("named", user_name=NAME)
    checked(call.state)

    async def work(_: McpTask) -> Result:
        await asyncio.sleep(0.2)
        return text(f"Hello, {_name_of(call.responses['user_name'])}!")

    return call.fixture.tasks.start(call.ctx, work)


SCHEMA_2020_12: Result = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {"$anchor": "addressDef", "type": "object", "properties": {"street": STRING, "city": STRING}},
    },
    "properties": {
        "name": STRING,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": STRING,
        "email": STRING,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@tool()
async def json_schema_2020_12_tool(call: Call) -> Result:
    """Take arguments of a rich schema."""
    return text(json.dumps(call.arguments))


TOOLS["json_schema_2020_12_tool"][1]["inputSchema"] = SCHEMA_2020_12

# ---------------------------------------------------------------- resources and prompts

RESOURCES: dict[str, Result] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": png()},
    "test://watched-resource": {"mimeType": "text/plain", "text": "This one may change."},
}
TEMPLATE = re.compile(r"test://template/([^/]+)/data")


def user(content: Result) -> Result:
    """A message of a prompt."""
    return {"role": "user", "content": content}


async def test_simple_prompt(call: Call) -> Result:
    """Say something simple."""
    return {"messages": [user({"type": "text", "text": "This is a simple prompt for testing."})]}


async def test_prompt_with_arguments(call: Call) -> Result:
    """Say what was given."""
    said = f"Prompt with arguments: arg1='{call.arguments.get('arg1')}', arg2='{call.arguments.get('arg2')}'"
    return {"messages": [user({"type": "text", "text": said})]}


async def test_prompt_with_embedded_resource(call: Call) -> Result:
    """Show a resource."""
    shown = {"uri": call.arguments.get("resourceUri"), "mimeType": "text/plain", "text": "Embedded resource content."}
    asked = user({"type": "text", "text": "Please process the embedded resource above."})
    return {"messages": [user({"type": "resource", "resource": shown}), asked]}


async def test_prompt_with_image(call: Call) -> Result:
    """Show a picture."""
    asked = user({"type": "text", "text": "Please analyze the image above."})
    return {"messages": [user({"type": "image", "data": png(), "mimeType": "image/png"}), asked]}


async def test_input_required_result_prompt(call: Call) -> Result:
    """Ask for a context first."""

    def tell(given: dict[str, Any]) -> Result:
        return {"messages": [user({"type": "text", "text": given["user_context"]["content"]["context"]})]}

    return await call.ask(tell, user_context=form("What context should the prompt use?", context=STRING))


PROMPTS: dict[str, tuple[Handler, tuple[str, ...]]] = {
    "test_simple_prompt": (test_simple_prompt, ()),
    "test_prompt_with_arguments": (test_prompt_with_arguments, ("arg1", "arg2")),
    "test_prompt_with_embedded_resource": (test_prompt_with_embedded_resource, ("resourceUri",)),
    "test_prompt_with_image": (test_prompt_with_image, ()),
    "test_input_required_result_prompt": (test_input_required_result_prompt, ()),
}


class Fixture:
    """The server, which clients of both protocol eras can use."""

    def __init__(self) -> None:
        self._bus = InMemorySubscriptionBus()
        self._changed: set[str] = set()
        self.computing = 0  # calls of `slow_compute` under way
        self.watched: dict[str, list[Any]] = {}
        self.tasks = Tasks(lambda _ctx: "the suite", interactive=lambda _ctx: True)
        self.server: Server[Any] = Server(
            "conformance-fixture",
            version="1.0.0",
            get_tool_input_schema=lambda name: TOOLS[name][1]["inputSchema"] if name in TOOLS else None,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=ListenHandler(self._bus),
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
        )
        self.server.add_request_handler("logging/setLevel", SetLevelRequestParams, self._set_level)
        self.tasks.serve(self.server)

    @property
    def initialization(self) -> Any:
        """The options that older clients get when they initialize."""
        return self.server.create_initialization_options(
            NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
        )

    async def change(self, kind: str) -> None:
        """Add something to a list, or take it away again, and tell whoever listens."""
        self._changed ^= {kind}
        await self._bus.publish(ToolsListChanged() if kind == "tools" else PromptsListChanged())

    async def update(self, uri: str) -> None:
        """Tell whoever wants to know that a resource has changed."""
        await self._bus.publish(ResourceUpdated(uri=uri))
        for connection in self.watched.get(uri, ()):
            await connection.send_resource_updated(uri)

    async def _list_tools(self, ctx: Context, params: Any) -> Any:
        more = ["later"] if "tools" in self._changed else []
        late = [{"name": name, "description": "Came later.", "inputSchema": {"type": "object"}} for name in more]
        return {"tools": [definition for _, definition in TOOLS.values()] + late, **CACHED}

    async def _call_tool(self, ctx: Context, params: Any) -> Any:
        known = TOOLS.get(params.name)
        if known is None:
            raise MCPError(code=INVALID_PARAMS, message=f"there is no tool {params.name!r}")
        call, handler = Call(self, ctx, params), known[0]
        if params.name in TASK_TOOLS:
            if knows_tasks(ctx):
                return self.tasks.start(ctx, lambda task: _in_task(handler, call, task))
            if TASK_TOOLS[params.name]:
                raise missing_tasks()
        return {**COMPLETE, **await handler(call)}

    async def _list_resources(self, ctx: Context, params: Any) -> Any:
        listed = [
            {"uri": uri, "name": uri.rpartition("/")[2], "description": "A resource.", "mimeType": one["mimeType"]}
            for uri, one in RESOURCES.items()
        ]
        return {"resources": listed, **CACHED}

    async def _list_templates(self, ctx: Context, params: Any) -> Any:
        one = {"uriTemplate": "test://template/{id}/data", "name": "data", "description": "Data by id."}
        return {"resourceTemplates": [{**one, "mimeType": "application/json"}], **CACHED}

    async def _read_resource(self, ctx: Context, params: Any) -> Any:
        uri = str(params.uri)
        if uri in RESOURCES:
            return {"contents": [{"uri": uri, **RESOURCES[uri]}], **CACHED}
        if match := TEMPLATE.fullmatch(uri):
            data = json.dumps({"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"})
            return {"contents": [{"uri": uri, "mimeType": "application/json", "text": data}], **CACHED}
        raise MCPError(code=INVALID_PARAMS, message="Resource not found", data={"uri": uri})

    async def _subscribe(self, ctx: Context, params: Any) -> Any:
        session: Any = ctx.session
        self.watched.setdefault(str(params.uri), []).append(session._connection)  # noqa: SLF001 - to tell it later
        return {}

    async def _unsubscribe(self, ctx: Context, params: Any) -> Any:
        self.watched.pop(str(params.uri), None)
        return {}

    async def _list_prompts(self, ctx: Context, params: Any) -> Any:
        listed = [
            {
                "name": name,
                "description": handler.__doc__,
                "arguments": [{"name": one, "description": "An argument.", "required": True} for one in arguments],
            }
            for name, (handler, arguments) in PROMPTS.items()
        ]
        late = [{"name": "later", "description": "Came later."}] if "prompts" in self._changed else []
        return {"prompts": listed + late, **CACHED}

    async def _get_prompt(self, ctx: Context, params: Any) -> Any:
        if params.name not in PROMPTS:
            raise MCPError(code=INVALID_PARAMS, message=f"there is no prompt {params.name!r}")
        return {**COMPLETE, **await PROMPTS[params.name][0](Call(self, ctx, params))}

    async def _complete(self, ctx: Context, params: Any) -> Any:
        begun = params.argument.value
        found = [word for word in ("paris", "park", "party", "test") if word.startswith(begun)]
        return {"completion": {"values": found, "total": len(found), "hasMore": False}, **COMPLETE}

    async def _set_level(self, ctx: Context, params: Any) -> Any:
        return {}


async def _in_task(handler: Handler, call: Call, task: McpTask) -> Result:
    call.task = task
    return await handler(call)


class Guarded:
    """An endpoint that rejects other host names and web origins, which the gateway does in front of its endpoint."""

    def __init__(self, endpoint: McpEndpoint) -> None:
        self._endpoint = endpoint
        hosts = ["127.0.0.1:*", "localhost:*"]
        origins = [f"http://{host}" for host in hosts]
        settings = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)
        self._security = TransportSecurityMiddleware(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = await self._security.validate_request(Request(scope))
        await (refused or self._endpoint)(scope, receive, send)


@asynccontextmanager
async def serving(server: Server[Any], *, call_tool: CallTool | None = None) -> AsyncGenerator[str]:
    """Serve over HTTP on this machine, while this is open, and return where."""
    endpoint = McpEndpoint(server, call_tool=call_tool)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        async with endpoint.running():
            yield

    with listen("127.0.0.1", 0) as listening:
        app = Starlette(routes=[Route("/mcp", endpoint=Guarded(endpoint))], lifespan=lifespan)
        task = asyncio.get_running_loop().create_task(serve_until_stopped(app, listening, grace_s=1))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            task.cancel()
            await asyncio.wait([task])


@asynccontextmanager
async def serving_fixture(fixture: Fixture | None = None) -> AsyncGenerator[str]:
    """Serve the fixture, while this is open, and return where."""
    fixture = fixture or Fixture()
    async with serving(fixture.server) as url:
        yield url
        await fixture.tasks.close()


@asynccontextmanager
async def serving_gateway(url: str, *, protocol: str = "auto") -> AsyncGenerator[str]:
    """Serve the gateway in front of the fixture, under the fixture's own names, and return where."""
    source = {
        "name": "fixture",
        "transport": "mcp",
        "connection": url,
        "options": {"protocol": protocol, "sampling": True},
        "required": True,
    }
    settings = Settings.model_validate(
        {"data_dir": None, "policy": "exploratory", "builtins": "none", "sources": [source]}
    )
    relay = ProgressRelay()
    async with Toolbox(settings=settings, sinks=[relay]) as box:
        view = View(box, "fixture", ViewSettings(sources=["fixture"], names="own"))
        mcp = McpServer(
            box, principal=lambda _ctx: "conformance:suite", interactive=lambda _ctx: True, relay=relay, view=view
        )
        async with mcp.publishing(), serving(mcp.server, call_tool=mcp.untraced_call) as served:
            yield served


async def main(*, through_gateway: bool) -> None:
    """Serve until the program is stopped."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serving_fixture())
        if through_gateway:
            url = await stack.enter_async_context(serving_gateway(url))
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main(through_gateway="--through-gateway" in sys.argv))
