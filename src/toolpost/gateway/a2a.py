"""A2A 1.0 for agents of other systems: an agent card, and tasks that are calls of tools.

A message with a data part `{"tool", "arguments"}` is a call; its task is the run of the call, so a task outlives the
process. A call that waits for a person is a task that requires input, which no A2A message can answer.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolpost import __version__
from toolpost.contracts.callers import OWN_DATA
from toolpost.contracts.calls import OutcomeKey
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolApprovalDenied, ToolCancelledError, ToolConflictError, ToolError
from toolpost.contracts.events import EventCode
from toolpost.contracts.outcomes import Completed, Failed, OpenQuestion, Outcome, Paused, outcome_to_dict
from toolpost.gateway.access import AGENT_CARD, CALLER, insufficient_scope
from toolpost.gateway.event_feed import events_after
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.event_stream import event_stream
from toolpost.gateway.rest.operations import json_bytes, read_json_body
from toolpost.runtime.job_runs import find_outcome
from toolpost.runtime.jobs import call_job
from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from starlette.requests import Request

    from toolpost.contracts.callers import Caller
    from toolpost.contracts.spec import ToolSpec
    from toolpost.gateway.rest.operations import RestService

_PATH = "/a2a"
_VERSION = "1.0"
_IMMEDIATELY_S = 0.1
_LOOK_S = 0.25
_CANCEL_S = 5.0
_LONGEST_ID = 200
_CONTEXT = re.compile(r"[A-Za-z0-9_-]{1,100}")
_INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS, _NOT_JSON = -32600, -32601, -32602, -32700
_NO_TASK, _NOT_CANCELABLE, _NO_PUSH, _UNSUPPORTED, _OTHER_VERSION = -32001, -32002, -32003, -32004, -32009
_DONE = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"})
_FAILURES = {
    ToolCancelledError.error_code: "TASK_STATE_CANCELED",
    ToolApprovalDenied.error_code: "TASK_STATE_REJECTED",
}
_WORKING = "TASK_STATE_WORKING"
_MODES = ["application/json", "text/plain"]
_HOW = 'Send a message with one data part: {"tool": "NAME", "arguments": {...}}'
_CALL = {
    "id": "call_tool",
    "name": "Call a tool",
    "description": f"{_HOW}. The extended card lists the tools.",
    "tags": ["tools"],
    "inputModes": ["application/json"],
    "outputModes": _MODES,
}


def a2a_routes(service: RestService) -> list[Route]:
    """Return the routes of the agent card, which needs no authentication, and of its tasks."""

    async def card(_request: Request) -> Response:
        return JSONResponse(_card(service, [_CALL]))

    async def tasks(raw: Request) -> Response:
        caller: Caller = raw.scope[CALLER]
        if "call" not in caller.scopes:
            return insufficient_scope("call").response()
        request_id: Any = None
        try:
            message = await _read(raw)
            request_id = message.get("id")
            _check_version(raw.headers.get("a2a-version", ""))
            return await _serve(
                _RpcRequest(service, caller, request_id, message["method"], message.get("params") or {})
            )
        except Problem as problem:
            return problem.response()
        except _RpcError as error:
            return _failure(request_id, error.code, str(error))
        except ToolError as error:
            error.conceal(service.box.redactor.message)
            return _failure(request_id, _INVALID_REQUEST, str(error))

    return [Route(AGENT_CARD, endpoint=card), Route(_PATH, endpoint=tasks, methods=["POST"])]


class _RpcError(Exception):
    """An error response of JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _RpcRequest(NamedTuple):
    """A JSON-RPC request with its caller."""

    service: RestService
    caller: Caller
    id: Any
    method: str
    params: dict[str, Any]

    @property
    def user(self) -> str:
        return str(self.caller.principal)


class _TaskState(NamedTuple):
    """State of the task of a run."""

    task_id: str
    outcome: Outcome | None

    @property
    def state(self) -> str:
        match self.outcome:
            case Completed():
                return "TASK_STATE_COMPLETED"
            case Failed(error=error):
                return _FAILURES.get(error.error_code, "TASK_STATE_FAILED")
            case Paused(question=question) if question.kind != "restart":
                return "TASK_STATE_AUTH_REQUIRED" if question.kind == "consent" else "TASK_STATE_INPUT_REQUIRED"
            case _:
                return _WORKING

    @property
    def names(self) -> dict[str, str]:
        """The IDs in an update: of the task, and of the context, which is a prefix of it."""
        return {"taskId": self.task_id, "contextId": self.task_id.rpartition(".")[0]}

    def status(self, text: str = "") -> dict[str, Any]:
        """Return the status with its message."""
        parts: list[dict[str, Any]] = [{"text": text}] if text else []
        match self.outcome:
            case Failed(error=error):
                parts = [{"text": str(error)}, {"data": {"error_code": error.error_code}}]
            case Paused(questions=questions) if self.state != _WORKING:
                parts = [part for asked in questions for part in _question_parts(asked)]
            case _:
                pass
        status: dict[str, Any] = {"state": self.state, "timestamp": datetime.now(UTC).isoformat()}
        if parts:
            status["message"] = {"messageId": secrets.token_hex(8), "role": "ROLE_AGENT", "parts": parts, **self.names}
        return status

    def artifact(self) -> dict[str, Any] | None:
        """Return the result of a completed call."""
        if not isinstance(self.outcome, Completed):
            return None
        content = outcome_to_dict(self.outcome)["content"]
        part = {"text": content} if isinstance(content, str) else {"data": content}
        return {"artifactId": self.outcome.call_id, "name": "result", "parts": [part]}

    def task(self) -> dict[str, Any]:
        """Return the whole task."""
        names, artifact = self.names, self.artifact()
        task = {"id": names["taskId"], "contextId": names["contextId"], "status": self.status()}
        return task if artifact is None else {**task, "artifacts": [artifact]}


def _question_parts(asked: OpenQuestion) -> list[dict[str, Any]]:
    names = {"pending_id": asked.pending_id, "kind": asked.question.kind, "tool_name": asked.tool_name}
    return [{"text": asked.question.prompt}, {"data": names}]


def _card(service: RestService, skills: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": "Toolpost",
        "description": f"Calls tools under one policy; some calls wait for approval. {_HOW}.",
        "version": __version__,
        "supportedInterfaces": [
            {"url": f"{service.public_url}{_PATH}", "protocolBinding": "JSONRPC", "protocolVersion": _VERSION}
        ],
        "capabilities": {"streaming": True, "pushNotifications": False, "extendedAgentCard": True},
        "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}}},
        "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
        "defaultInputModes": ["application/json"],
        "defaultOutputModes": _MODES,
        "skills": skills,
    }


def _skill(spec: ToolSpec) -> dict[str, Any]:
    return {
        "id": spec.name,
        "name": spec.name,
        "description": spec.description,
        "tags": [*spec.tags] or ["tool"],
        "examples": [json.dumps({"tool": spec.name, "arguments": spec.input_schema}, default=str)],
    }


async def _read(raw: Request) -> dict[str, Any]:
    """Read a request; convert whole floats to integers, because A2A sends all numbers as floats."""
    body = await read_json_body(raw)
    try:
        message = json.loads(body, parse_float=_number)
    except (ValueError, RecursionError):
        raise _RpcError(_NOT_JSON, "the body is not valid JSON") from None
    if not is_object(message) or not isinstance(message.get("method"), str) or message.get("jsonrpc") != "2.0":
        raise _RpcError(_INVALID_REQUEST, "the body is not a JSON-RPC 2.0 request")
    if not is_object(message.get("params") or {}):
        raise _RpcError(_INVALID_PARAMS, "params must be an object")
    return dict(message)


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _check_version(version: str) -> None:
    if version and version.partition(".")[0] != "1":
        raise _RpcError(_OTHER_VERSION, f"A2A {version[:20]} is not supported; use {_VERSION}")


async def _serve(request: _RpcRequest) -> Response:
    match request.method:
        case "SendMessage":
            return await _send_message(request)
        case "SendStreamingMessage":
            run_id, running = _start(request)
            return _stream(request, run_id, running)
        case "GetTask":
            return _result(request, (await _find(request)).task())
        case "CancelTask":
            return _result(request, (await _cancel(request)).task())
        case "SubscribeToTask":
            found = await _find(request)
            if found.state in _DONE:
                raise _RpcError(_UNSUPPORTED, f"task {found.task_id!r} has ended; use GetTask")
            return _stream(request, found.task_id, None)
        case "GetExtendedAgentCard":
            entries = request.service.tools_for(request.caller).entries()
            return _result(request, _card(request.service, [_CALL, *(_skill(entry.spec) for entry in entries)]))
        case "ListTasks":
            raise _RpcError(_UNSUPPORTED, "ListTasks is not supported; GET /api/v1/runs lists runs")
        case method if "PushNotification" in method:
            raise _RpcError(_NO_PUSH, "push notifications are not supported; configure webhooks to receive events")
        case method:
            raise _RpcError(_NO_METHOD, f"unknown method {method[:100]!r}")


async def _send_message(request: _RpcRequest) -> Response:
    configuration: Any = request.params.get("configuration")
    if is_object(configuration) and configuration.get("returnImmediately") is True:
        return _result(request, {"task": (await _enqueue(request)).task()})
    run_id, running = _start(request)
    outcome = await asyncio.shield(running)  # a disconnect of the client does not cancel the call
    return _result(request, {"task": _task_of(run_id, outcome).task()})


async def _enqueue(request: _RpcRequest) -> _TaskState:
    """Store the call of a message as a job, once per message ID, and return its task."""
    call = _read_message(request)
    if (refused := await request.service.tools_for(request.caller).refusal(call.tool)) is not None:
        raise refused
    job = call_job(
        call.run_id,
        call.tool,
        call.arguments,
        principal=request.caller.principal,
        at=time.time(),
        queue="tasks",
        outcome_key=call.key,
        caller=request.caller.id,
        session=call.session,
    )
    box = request.service.box
    await box.engine.enqueue(job)
    deadline = time.monotonic() + _IMMEDIATELY_S
    while time.monotonic() < deadline:
        run = await box.run(call.run_id, user=request.user)
        outcome = None if run is None else await find_outcome(box.store, run)
        if run is not None and (outcome is not None or run.events):
            return _task_of(run.run_id, outcome)
        await asyncio.sleep(_LOOK_S / 10)
    return _TaskState(call.run_id, None)


def _start(request: _RpcRequest) -> tuple[str, asyncio.Task[Outcome]]:
    """Start the call of a message, once per message ID."""
    call = _read_message(request)
    calling = request.service.tools_for(request.caller).call(
        call.tool,
        call.arguments,
        user=request.user,
        idempotency_key=OutcomeKey(call.key),
        run_id=call.run_id,
        context=ToolContext(caller=request.caller.id),
        session=call.session,
    )
    return call.run_id, request.service.start_call(calling)


class _MessageCall(NamedTuple):
    """The call of a message, its run, and the key that makes it run once."""

    tool: str
    arguments: dict[str, Any]
    run_id: str
    key: str
    session: str


def _read_message(request: _RpcRequest) -> _MessageCall:
    if request.service.is_stopping:
        raise _RpcError(_INVALID_REQUEST, "the gateway is shutting down; retry in a moment")
    message = request.params.get("message")
    if not is_object(message):
        raise _RpcError(_INVALID_PARAMS, "params.message is missing")
    if message.get("taskId"):
        raise _RpcError(_UNSUPPORTED, "a task accepts no further messages: a person must answer its question")
    tool, arguments = _read_call(message)
    given = message.get("contextId") or ""
    context = given or f"ctx_{secrets.token_hex(8)}"
    if not isinstance(context, str) or not _CONTEXT.fullmatch(context):
        raise _RpcError(_INVALID_PARAMS, "contextId must be up to 100 letters, digits, - and _")
    run_id = f"{context}.{request.service.box.router.new_id('task')}"
    message_id = message.get("messageId")
    if not isinstance(message_id, str) or not 0 < len(message_id) <= _LONGEST_ID:
        raise _RpcError(_INVALID_PARAMS, f"messageId must be a string of up to {_LONGEST_ID} characters")
    return _MessageCall(tool, arguments, run_id, f"a2a:{message_id}", f"{request.caller.id} {given}")


def _read_call(message: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    parts = message.get("parts")
    found = [part["data"] for part in parts if is_object(part) and "data" in part] if is_array(parts) else []
    if len(found) != 1 or not is_object(found[0]) or not isinstance(found[0].get("tool"), str):
        raise _RpcError(_INVALID_PARAMS, _HOW)
    arguments: Any = found[0].get("arguments") or {}
    if not is_object(arguments):
        raise _RpcError(_INVALID_PARAMS, "arguments must be an object")
    return found[0]["tool"], dict(arguments)


def _task_of(run_id: str, outcome: Outcome | None) -> _TaskState:
    """Return the task of a call; a repeated message ID returns the first task."""
    if isinstance(outcome, Failed) and isinstance(outcome.error, ToolConflictError):
        raise _RpcError(_INVALID_REQUEST, str(outcome.error))
    return _TaskState(run_id if outcome is None else outcome.run_id, outcome)


async def _find(request: _RpcRequest) -> _TaskState:
    """Return the task of a request; tasks of other users are not found."""
    task_id = request.params.get("id")
    if not isinstance(task_id, str) or not task_id:
        raise _RpcError(_INVALID_PARAMS, "params.id must be the ID of a task")
    box, principal = request.service.box, request.caller.principal
    run = await box.run(task_id, user=request.user) if "." in task_id else None
    is_shown = run is not None and (not request.caller.scopes <= OWN_DATA or run.user == principal.user)
    if run is None or not is_shown:
        raise _RpcError(_NO_TASK, f"unknown task {task_id[:_LONGEST_ID]!r}")
    return _TaskState(task_id, await find_outcome(box.store, run))


async def _cancel(request: _RpcRequest) -> _TaskState:
    found = await _find(request)
    if found.state in _DONE or not await request.service.box.cancel(found.task_id, by=request.user):
        raise _RpcError(_NOT_CANCELABLE, f"task {found.task_id!r} has ended")
    watch = request.service.feed.watch(found.task_id, tenant=request.caller.principal.tenant)
    deadline = time.monotonic() + _CANCEL_S  # the task may run in another process
    while (found := await _find(request)).state not in _DONE and time.monotonic() < deadline:
        await watch.wait(at_most_s=_LOOK_S)
    return found


def _stream(request: _RpcRequest, task_id: str, running: asyncio.Task[Outcome] | None) -> Response:
    return event_stream(_updates(request, task_id, running))


async def _updates(request: _RpcRequest, task_id: str, running: asyncio.Task[Outcome] | None) -> AsyncGenerator[bytes]:
    """Send the task, its progress, its result and its final status."""
    now, seen = _TaskState(task_id, None), 0
    yield _event(request, {"task": now.task()})
    log, tenant = request.service.box.store.events, request.caller.principal.tenant
    try:
        watch = request.service.feed.watch(task_id, tenant=tenant)
        while now.state == _WORKING and not request.service.is_stopping:
            # The outcome of a call of another process is stored shortly after its last event.
            await watch.wait(running, at_most_s=math.inf if running is not None else _LOOK_S)
            now = await _current_state(request, task_id, running)
            async for event in events_after(log, seen, tenant=tenant, run_id=task_id):
                seen = event.id
                text = event.payload.get("text")
                if event.code is EventCode.SUBAGENT_ACTION and isinstance(text, str) and text:
                    status = _TaskState(task_id, None).status(text)
                    yield _event(request, {"statusUpdate": {**now.names, "status": status}})
    except _RpcError as error:
        yield b"data: %s\n\n" % json_bytes(_error(request.id, error.code, str(error)))
        return
    if (artifact := now.artifact()) is not None:
        yield _event(request, {"artifactUpdate": {**now.names, "artifact": artifact, "lastChunk": True}})
    yield _event(request, {"statusUpdate": {**now.names, "status": now.status()}})


async def _current_state(request: _RpcRequest, task_id: str, running: asyncio.Task[Outcome] | None) -> _TaskState:
    if running is not None:
        return _task_of(task_id, running.result()) if running.done() else _TaskState(task_id, None)
    return await _find(request)


def _event(request: _RpcRequest, result: Mapping[str, Any]) -> bytes:
    return b"data: %s\n\n" % json_bytes({"jsonrpc": "2.0", "id": request.id, "result": result})


def _result(request: _RpcRequest, result: Mapping[str, Any]) -> Response:
    body = json_bytes({"jsonrpc": "2.0", "id": request.id, "result": result})
    return Response(body, media_type="application/json")


def _error(request_id: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


def _failure(request_id: Any, code: int, message: str) -> Response:
    return Response(json_bytes(_error(request_id, code, message)), media_type="application/json")
