"""OpenTelemetry traces: find the tracer, and pass trace ids in and out.

Without `opentelemetry-api` or a tracer provider, tracing is off, and nothing is imported.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

TRACEPARENT = "traceparent"
_API = "opentelemetry.trace"


def find_tracer() -> Tracer | None:
    """Return the tracer of the provider that this program has set up; None if there is none.

    A program with a provider has imported the API, so the check costs nothing in other programs.
    """
    if _API not in sys.modules:
        return None
    from opentelemetry import trace  # noqa: PLC0415 - an extra

    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return provider.get_tracer("toolpost")


def current_trace_id() -> str | None:
    """Return the id of the current task's trace in hex."""
    if _API not in sys.modules:
        return None
    from opentelemetry import trace  # noqa: PLC0415 - an extra

    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else None


def traceparent() -> str | None:
    """Return the current span in W3C Trace Context form: ids only, without `tracestate` and baggage."""
    if _API not in sys.modules:
        return None
    from opentelemetry import trace  # noqa: PLC0415 - an extra

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def remote_parent(carrier: Mapping[str, str]) -> Context | None:
    """Return the context of the span in a caller's `traceparent`; None if there is none."""
    from opentelemetry import trace  # noqa: PLC0415 - an extra
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    named = carrier.get(TRACEPARENT)
    if named is None:
        return None
    context = TraceContextTextMapPropagator().extract({TRACEPARENT: named})
    return context if trace.get_current_span(context).get_span_context().is_valid else None
