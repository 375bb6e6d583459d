"""Observation of requests and calls: OpenTelemetry spans and log lines."""

from __future__ import annotations

import json
import logging
import sys
import time
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from toolpost.contracts.events import EventCode
from toolpost.gateway.access import CALLER
from toolpost.policy.log_redaction import LOG_FIELDS, escape_controls
from toolpost.wire.tracing import current_trace_id, find_tracer, remote_parent

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from contextlib import AbstractContextManager

    from opentelemetry.trace import Span, Tracer
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from toolpost.contracts.callers import Caller
    from toolpost.contracts.events import RunEvent

LogFormat = Literal["text", "json"]
_PACKAGE = "toolpost"
_SERVER_ERROR = 500
_log = logging.getLogger("toolpost.gateway")
_OUTCOMES = {
    EventCode.TOOL_CALL_COMPLETED: "completed",
    EventCode.TOOL_CALL_FAILED: "failed",
    EventCode.APPROVAL_REQUESTED: "paused",
    EventCode.CALL_PAUSED: "paused",
}


def observed(app: ASGIApp) -> ASGIApp:
    """Return the application with spans and log lines, or unchanged if both are disabled."""
    tracer = find_tracer()
    return app if tracer is None and not _log.isEnabledFor(logging.INFO) else _Observation(app, tracer)


class _Observation:
    """ASGI middleware: a server span per request, as a child of the caller's span, and a log line."""

    def __init__(self, app: ASGIApp, tracer: Tracer | None) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def observed_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        spanning: AbstractContextManager[Span | None] = (
            nullcontext() if self._tracer is None else _server_span(self._tracer, scope)
        )
        with spanning as span:
            try:
                await self._app(scope, receive, observed_send)
            finally:
                if span is not None:
                    _finish_span(span, scope, status)
                _log_request(scope, status, (time.perf_counter() - began) * 1000)


def _server_span(tracer: Tracer, scope: Scope) -> AbstractContextManager[Span]:
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - there is a tracer

    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    attributes = {"http.request.method": scope["method"], "url.path": scope["path"]}
    return tracer.start_as_current_span(
        scope["method"],
        context=remote_parent(headers),
        kind=SpanKind.SERVER,
        attributes=attributes,
        record_exception=False,
    )


def _finish_span(span: Span, scope: Scope, status: int) -> None:
    route = getattr(scope.get("route"), "path", None)
    if route:
        span.update_name(f"{scope['method']} {route}")
        span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)
    if status >= _SERVER_ERROR:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - there is a tracer

        span.set_status(StatusCode.ERROR)


def _log_request(scope: Scope, status: int, duration_ms: float) -> None:
    level = logging.WARNING if status >= _SERVER_ERROR else logging.INFO
    if not _log.isEnabledFor(level):
        return
    caller: Caller | None = scope.get(CALLER)
    fields = {
        "method": scope["method"],
        "path": scope["path"],  # without the query, which may contain a secret
        "status": status,
        "duration_ms": round(duration_ms, 3),
        "principal": None if caller is None else str(caller.principal),
        "caller": None if caller is None else caller.id,
        "trace_id": current_trace_id(),
    }
    _log.log(level, "%s %s %d", fields["method"], fields["path"], status, extra={LOG_FIELDS: fields})


class CallLog:
    """Event sink that logs each ended or paused call; failures as warnings."""

    def emit(self, event: RunEvent) -> None:
        outcome = _OUTCOMES.get(event.code)
        level = logging.WARNING if outcome == "failed" else logging.INFO
        if outcome is None or not _log.isEnabledFor(level):
            return
        call, payload = event.call, event.payload  # redacted
        took_ms = payload.get("duration_ms")
        fields = {
            "tool": call.tool_name,
            "outcome": outcome,
            "duration_ms": None if took_ms is None else round(took_ms, 3),
            "principal": f"{call.tenant}:{call.user}",
            "run_id": call.run_id,
            "call_id": call.call_id,
            "error_code": payload.get("error_code"),
            "pending_id": payload.get("pending_id"),
            "trace_id": current_trace_id(),
        }
        reason = f": {payload.get('error_message')}" if outcome == "failed" else ""
        _log.log(level, "%s %s%s", call.tool_name, outcome, reason, extra={LOG_FIELDS: fields})


@contextmanager
def logging_to_stderr(form: LogFormat | None) -> Generator[None]:
    """Log requests, calls and warnings to stderr while this is open; None disables it."""
    if form is None:
        yield
        return
    logger, handler = logging.getLogger(_PACKAGE), logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter())
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


class _TextFormatter(logging.Formatter):
    """One line per record: time, level, message and fields. Lines of a traceback follow with a bar."""

    def format(self, record: logging.LogRecord) -> str:
        parts = [_time_of(record), record.levelname, escape_controls(record.getMessage())]
        parts += [f"{name}={escape_controls(str(value))}" for name, value in _fields_of(record)]
        exception = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else "")
        below = [f"  | {escape_controls(line)}" for line in exception.splitlines()]
        return "\n".join([" ".join(parts), *below])


class _JsonFormatter(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **dict(_fields_of(record)),
        }
        if record.exc_info or record.exc_text:
            line["exception"] = record.exc_text or self.formatException(record.exc_info or (None, None, None))
        return json.dumps(line, default=str)


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _fields_of(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    fields: dict[str, Any] = getattr(record, LOG_FIELDS, {})
    yield from ((name, value) for name, value in fields.items() if value is not None)
