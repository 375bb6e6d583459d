"""JSON documents of sources: connection, state, breaker, pinned definitions and recent calls."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from toolpost.catalog.lock import compare
from toolpost.configuration.file_editor import read_entry, snippet
from toolpost.connecting.source_plans import runs_code, with_references
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.metrics import MINUTE_S, percentile
from toolpost.contracts.source_kinds import AuthType
from toolpost.policy.redaction import mask_url_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.metrics import MetricRow
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.source_index import ManagedSource

_WINDOW_S = 3600
_MOST_PROBLEMS = 100


async def source_documents(box: Toolbox, *, tenant: str) -> list[dict[str, Any]]:
    """Return all sources, also those of the configuration that are not enabled; calls are those of a tenant."""
    calls = await _calls(box, tenant)
    index = box.sources.index.by_name
    documents = [_document(box, managed, calls.get(name)) for name, managed in index.items()]
    disabled = [one for one in box.settings.all_sources() if not one.enabled and one.name not in index]
    return [*documents, *(disabled_document(box, config) for config in disabled)]


async def source_document(box: Toolbox, name: str, *, tenant: str) -> dict[str, Any] | None:
    """Return one source, or None."""
    found = [one for one in await source_documents(box, tenant=tenant) if one["name"] == name]
    return found[0] if found else None


def service_of(config: ExternalToolConfig) -> str | None:
    """Return the service that the users of a source sign in to, or None."""
    if config.auth_type is not AuthType.OAUTH2_USER:
        return None
    return str(config.auth_config.get("provider") or config.name)


def masked_connection(box: Toolbox, config: ExternalToolConfig) -> str:
    """Return the command or URL of a source with references to variables, and other secrets masked."""
    return mask_url_secrets(box.redactor.text(config.connection))


def source_yaml(box: Toolbox, name: str, environ: Mapping[str, str]) -> str | None:
    """Return a source as an entry of the configuration file: secrets are references to variables, or masked."""
    managed = box.sources.index.by_name.get(name)
    written = None if box.config_path is None else read_entry(box.config_path, name)
    config = written if managed is None or managed.declared else managed.given
    if config is None:
        return None
    shown = with_references(config, environ).model_copy(update={"connection": masked_connection(box, config)})
    return box.redactor.text(snippet([shown]))


def _document(box: Toolbox, managed: ManagedSource, calls: MetricRow | None) -> dict[str, Any]:
    config, now = managed.given, time.monotonic()
    problems = [*managed.tools.listing.problems, *managed.tools.held, *managed.tools.listing.unchecked]
    retry_in_s = managed.retry_at - now if managed.error is not None else 0.0
    breaker = box.router.guards.breaker(config.name)
    return {
        **asdict(managed.state(box.redactor)),
        **_settings(box, config),
        "declared": managed.declared,
        "since": managed.changed_at,
        "last_error_at": managed.last_error_at,
        "failures": managed.failures,
        "next_try_at": time.time() + retry_in_s if retry_in_s > 0 else None,
        "breaker": {
            "state": "closed" if breaker is None else breaker.state,
            "retry_in_s": None if breaker is None else breaker.retry_in_s,
        },
        "lock": _lock_counts(managed),
        "problems": [box.redactor.redact(problem) for problem in problems[:_MOST_PROBLEMS]],
        "calls_1h": 0 if calls is None else calls.calls,
        "p95_ms": None if calls is None else percentile(calls.durations, 0.95),
    }


def disabled_document(box: Toolbox, config: ExternalToolConfig) -> dict[str, Any]:
    """Return a source that is not enabled."""
    nothing = dict.fromkeys(("since", "last_error_at", "next_try_at", "lock", "p95_ms"))
    return {
        "name": config.name,
        "transport": str(config.transport),
        "ok": False,
        "tools": 0,
        "error": "the source is not enabled",
        "state": "disabled",
        **_settings(box, config),
        "declared": any(one.name == config.name for one in box.settings.all_sources()),
        **nothing,
        "failures": 0,
        "breaker": {"state": "closed", "retry_in_s": None},
        "problems": [],
        "calls_1h": 0,
    }


def _settings(box: Toolbox, config: ExternalToolConfig) -> dict[str, Any]:
    return {
        "description": config.description,
        "target": masked_connection(box, config),
        "runs_code": runs_code(config),
        "trust": config.trust,
        "required": config.required,
        "enabled": config.enabled,
        "auth_type": config.auth_type.value,
        "service": service_of(config),
    }


def _lock_counts(managed: ManagedSource) -> dict[str, Any] | None:
    """Count the tools that equal the accepted definitions and that differ, and add the time; None without any."""
    pins = managed.tools.pins
    try:
        pinned = None if pins is None else pins.read()
    except ConfigError:  # the file cannot be read; the tools report it
        return None
    if pins is None or pinned is None:
        return None
    now = {tool.spec.name.partition(".")[2]: pins.pin(tool) for tool in managed.tools.listing.tools.values()}
    kinds = [one.kind for one in compare(managed.config.name, pinned.pins, now)]
    counts = {kind: kinds.count(kind) for kind in ("changed", "new", "gone")}
    return {"pinned": len(pinned.pins), **counts, "written_at": pinned.written_at}


async def _calls(box: Toolbox, tenant: str) -> Mapping[str, MetricRow]:
    now = time.time()
    rows = await box.store.metrics.read("source", tenant=tenant, width=MINUTE_S, since=now - _WINDOW_S, until=now)
    found: dict[str, MetricRow] = {}
    for row in rows:
        found[row.key] = found[row.key].merge(row) if row.key in found else row
    return found
