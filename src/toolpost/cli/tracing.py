"""Set OpenTelemetry up from its own environment variables, for commands that run without `opentelemetry-instrument`."""

from __future__ import annotations

import os
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Generator

_EXPORTER = "OTEL_TRACES_EXPORTER"
_SERVICE = "OTEL_SERVICE_NAME"
_GROUP = "opentelemetry_traces_exporter"
_REMEDY = "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"


@contextmanager
def tracing_from_environment() -> Generator[None]:
    """Export spans while this is open, if OTEL_TRACES_EXPORTER names an exporter and no provider is set."""
    names = [name.strip() for name in os.environ.get(_EXPORTER, "none").split(",")]
    wanted = [name for name in names if name not in ("", "none")]
    if not wanted or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield
        return
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as missing:
        raise ConfigError(f"{_EXPORTER} is set, and OpenTelemetry's SDK is not installed; run: {_REMEDY}") from missing
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        yield
        return
    named = {} if os.environ.get(_SERVICE) else {"service.name": "toolpost"}
    provider = TracerProvider(resource=Resource.create(named))
    for name in wanted:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name)()))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()


def _exporter(name: str) -> type:
    entry_point = next(iter(entry_points(group=_GROUP, name=name)), None)
    if entry_point is None:
        names = ", ".join(sorted({one.name for one in entry_points(group=_GROUP)})) or "none"
        raise ConfigError(f"{_EXPORTER} is {name!r}, and no such exporter is installed (there are: {names}); {_REMEDY}")
    exporter: type = entry_point.load()
    return exporter
