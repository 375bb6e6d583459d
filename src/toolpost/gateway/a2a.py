"""Agents of others over A2A 1.0: an agent card, and tasks that are calls of tools.

A message with a data part `{"tool", "arguments"}` is a call; its task is the run of the call, so that a task outlives
the process. A call that waits for a person is a task that requires input, and nothing that comes over A2A answers it.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolpost import __version__
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
from toolpost.runtime.persistence import kept_outcome
from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from starlette.requests import Request

    from toolpost.contracts.callers import Caller
    from toolpost.contracts.spec import ToolSpec
    from toolpost.gateway.rest.service import RestService

_PATH = "/a2a"
_VERSION = "1.0"
_LOOK_S = 0.1
_CANCEL_LOOKS = 50
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


class _RpcError(Exception):
    """The error of a request, with its code in JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Ask(NamedTuple):
    """A request: its method and parameters, and who sends it."""

    service: RestService
    caller: Caller
    id: Any
    method: str
    params: dict[str, Any]

    @property
    def user(self) -> str:
        return str(self.caller.principal)


class _TaskState(NamedTuple):
    """How the task of a run stands."""

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
        """The ids of an update: of the task, and of the context that its id begins with."""
        return {"taskId": self.task_id, "contextId": self.task_id.rpartition(".")[0]}

    def status(self, text: str = "") -> dict[str, Any]:
        """Return the status, with what there is to say about it."""
        parts: list[dict[str, Any]] = [{"text": text}] if text else []
        match self.outcome:
            case Failed(error=error):
                parts = [{"text": str(error)}, {"data": {"error_code": error.error_code}}]
            case Paused(questions=questions) if self.state != _WORKING:
                parts = [part for asked in questions for part in _asked(asked)]
            case _:
                pass
        status: dict[str, Any] = {"state": self.state, "timestamp": datetime.now(UTC).isoformat()}
        if parts:
            said = {"messageId": secrets.token_hex(8), "role": "ROLE_AGENT", "parts": parts, **self.names}
            status["message"] = said
        return status

    def artifact(self) -> dict[str, Any] | None:
        """Return the result of a call that is complete."""
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


def _asked(asked: OpenQuestion) -> list[dict[str, Any]]:
    """Return the parts of a message that name one question."""
    names = {"pending_id": asked.pending_id, "kind": asked.question.kind, "tool_name": asked.tool_name}
    return [{"text": asked.question.prompt}, {"data": names}]


def a2a_routes(service: RestService) -> list[Route]:
    """Return the routes of the agent card, which needs no caller, and of its tasks."""

    async def card(_request: Request) -> Response:
        return JSONResponse(_card(service, [_CALL]))

    async def tasks(request: Request) -> Response:
        caller: Caller = request.scope[CALLER]
        if "call" not in caller.scopes:
            return insufficient_scope("call").response()
        request_id: Any = None
        try:
            message = await _read(request)
            request_id = message.get("id")
            ask = _Ask(service, caller, request_id, message["method"], message.get("params") or {})
            _check_version(request.headers.get("a2a-version", ""))
            return await _serve(ask)
        except Problem as problem:
            return problem.response()
        except _RpcError as error:
            return _failure(request_id, error.code, str(error))
        except ToolError as error:
            error.conceal(service.box.redactor.message)
            return _failure(request_id, _INVALID_REQUEST, str(error))

    return [Route(AGENT_CARD, endpoint=card), Route(_PATH, endpoint=tasks, methods=["POST"])]


_CALL = {
    "id": "call_tool",
    "name": "Call a tool",
    "description": f"{_HOW}. The extended card lists the tools.",
    "tags": ["tools"],
    "inputModes": ["application/json"],
    "outputModes": _MODES,
}


def _card(service: RestService, skills: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": "Toolpost",
        "description": f"Calls tools under one policy; some calls wait until a person has agreed. {_HOW}.",
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


async def _read(request: Request) -> dict[str, Any]:
    """Read a request; numbers come as floats, because A2A has no others."""
    body = await read_json_body(request)
    try:
        message = json.loads(body, parse_float=_number)
    except (ValueError, RecursionError):
        raise _RpcError(_NOT_JSON, "the body is no JSON") from None
    if not is_object(message) or not isinstance(message.get("method"), str) or message.get("jsonrpc") != "2.0":
        raise _RpcError(_INVALID_REQUEST, "the body is no request of JSON-RPC 2.0")
    if not is_object(message.get("params") or {}):
        raise _RpcError(_INVALID_PARAMS, "params must be an object")
    return dict(message)


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _check_version(version: str) -> None:
    if version and version.partition(".")[0] != "1":
        raise _RpcError(_OTHER_VERSION, f"A2A {version[:20]} is not spoken here; {_VERSION} is")


async def _serve(ask: _Ask) -> Response:
    match ask.method:
        case "SendMessage":
            return await _send_message(ask)
        case "SendStreamingMessage":
            run_id, running = _start(ask)
            return _stream(ask, run_id, running)
        case "GetTask":
            return _result(ask, (await _find(ask)).task())
        case "CancelTask":
            return _result(ask, (await _cancel(ask)).task())
        case "SubscribeToTask":
            found = await _find(ask)
            if found.state in _DONE:
                raise _RpcError(_UNSUPPORTED, f"task {found.task_id!r} has ended; get it")
            return _stream(ask, found.task_id, None)
        case "GetExtendedAgentCard":
            entries = ask.service.tools_for(ask.caller).entries()
            return _result(ask, _card(ask.service, [_CALL, *(_skill(entry.spec) for entry in entries)]))
        case "ListTasks":
            raise _RpcError(_UNSUPPORTED, "tasks are not listed here; GET /api/v1/runs lists runs")
        case method if "PushNotification" in method:
            raise _RpcError(_NO_PUSH, "there are no push notifications; webhooks of the configuration send events")
        case method:
            raise _RpcError(_NO_METHOD, f"there is no method {method[:100]!r}")


async def _send_message(ask: _Ask) -> Response:
    run_id, running = _start(ask)
    configuration: Any = ask.params.get("configuration")
    if is_object(configuration) and configuration.get("returnImmediately") is True:
        await asyncio.wait([running], timeout=_LOOK_S)
        outcome = running.result() if running.done() else None
    else:
        # A client that goes away does not end its call.
        outcome = await asyncio.shield(running)
    return _result(ask, {"task": _task_of(run_id, outcome).task()})


def _start(ask: _Ask) -> tuple[str, asyncio.Task[Outcome]]:
    """Begin the call that a message asks for, once for the id of the message."""
    if ask.service.is_stopping:
        raise _RpcError(_INVALID_REQUEST, "the gateway is stopping; send it again in a moment")
    message = ask.params.get("message")
    if not is_object(message):
        raise _RpcError(_INVALID_PARAMS, "params.message is missing")
    if message.get("taskId"):
        raise _RpcError(_UNSUPPORTED, "a task takes no further message: what it waits for is answered by a person")
    tool, arguments = _read_call(message)
    given = message.get("contextId") or ""
    context = given or f"ctx_{secrets.token_hex(8)}"
    if not isinstance(context, str) or not _CONTEXT.fullmatch(context):
        raise _RpcError(_INVALID_PARAMS, "contextId must be up to 100 letters, digits, - and _")
    run_id = f"{context}.{ask.service.box.router.new_id('task')}"
    message_id = message.get("messageId")
    if not isinstance(message_id, str) or not 0 < len(message_id) <= _LONGEST_ID:
        raise _RpcError(_INVALID_PARAMS, f"messageId must be a text of up to {_LONGEST_ID} characters")
    tools = ask.service.tools_for(ask.caller)
    made_by = ToolContext(caller=ask.caller.id)
    key, session = OutcomeKey(f"a2a:{message_id}"), f"{ask.caller.id} {given}"
    calling = tools.call(
        tool, arguments, user=ask.user, idempotency_key=key, run_id=run_id, context=made_by, session=session
    )
    return run_id, ask.service.start_call(calling)


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
    """Return the task of a call; that of an earlier message with the same id is the earlier one."""
    if isinstance(outcome, Failed) and isinstance(outcome.error, ToolConflictError):
        raise _RpcError(_INVALID_REQUEST, str(outcome.error))
    return _TaskState(run_id if outcome is None else outcome.run_id, outcome)


async def _find(ask: _Ask) -> _TaskState:
    """Return the task of an id; those of others are missing."""
    task_id = ask.params.get("id")
    if not isinstance(task_id, str) or not task_id:
        raise _RpcError(_INVALID_PARAMS, "params.id must be the id of a task")
    box, principal = ask.service.box, ask.caller.principal
    run = await box.run(task_id, user=ask.user) if "." in task_id else None
    is_shown = run is not None and (not ask.caller.scopes <= {"call"} or run.user == principal.user)
    if run is None or not is_shown:
        raise _RpcError(_NO_TASK, f"there is no task {task_id[:_LONGEST_ID]!r}")
    return _TaskState(task_id, await kept_outcome(box.store, run))


async def _cancel(ask: _Ask) -> _TaskState:
    found = await _find(ask)
    if found.state in _DONE or not await ask.service.box.cancel(found.task_id, by=ask.user):
        raise _RpcError(_NOT_CANCELABLE, f"task {found.task_id!r} has ended")
    for _ in range(_CANCEL_LOOKS):  # it may run in another process
        found = await _find(ask)
        if found.state in _DONE:
            break
        await asyncio.sleep(_LOOK_S)
    return found


# ---------------------------------------------------------------- streams


def _stream(ask: _Ask, task_id: str, running: asyncio.Task[Outcome] | None) -> Response:
    return event_stream(_updates(ask, task_id, running))


async def _updates(ask: _Ask, task_id: str, running: asyncio.Task[Outcome] | None) -> AsyncGenerator[bytes]:
    """Send the task, what it reports meanwhile, its result and its last status."""
    now, seen = _TaskState(task_id, None), 0
    yield _event(ask, {"task": now.task()})
    log, tenant = ask.service.box.store.events, ask.caller.principal.tenant
    try:
        with ask.service.feed.watching(task_id, tenant=tenant) as watch:
            while now.state == _WORKING and not ask.service.is_stopping:
                await watch.wait(running)
                now = await _look(ask, task_id, running)
                async for event in events_after(log, seen, tenant=tenant, run_id=task_id):
                    seen = event.id
                    text = event.payload.get("text")
                    if event.code is EventCode.SUBAGENT_ACTION and isinstance(text, str) and text:
                        status = _TaskState(task_id, None).status(text)
                        yield _event(ask, {"statusUpdate": {**now.names, "status": status}})
    except _RpcError as error:
        yield b"data: %s\n\n" % json_bytes(_error(ask.id, error.code, str(error)))
        return
    if (artifact := now.artifact()) is not None:
        yield _event(ask, {"artifactUpdate": {**now.names, "artifact": artifact, "lastChunk": True}})
    yield _event(ask, {"statusUpdate": {**now.names, "status": now.status()}})


async def _look(ask: _Ask, task_id: str, running: asyncio.Task[Outcome] | None) -> _TaskState:
    """Return how a task stands."""
    if running is not None:
        return _task_of(task_id, running.result()) if running.done() else _TaskState(task_id, None)
    return await _find(ask)


def _event(ask: _Ask, result: Mapping[str, Any]) -> bytes:
    return b"data: %s\n\n" % json_bytes({"jsonrpc": "2.0", "id": ask.id, "result": result})


def _result(ask: _Ask, result: Mapping[str, Any]) -> Response:
    body = json_bytes({"jsonrpc": "2.0", "id": ask.id, "result": result})
    return Response(body, media_type="application/json")


def _error(request_id: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


def _failure(request_id: Any, code: int, message: str) -> Response:
    return Response(json_bytes(_error(request_id, code, message)), media_type="application/json")
