"""Filters of events and runs that several operations share, and the runs that a caller may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.contracts.events import EventFilter, parse_event_types
from toolpost.gateway.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.events import EventCode, RunSummary
    from toolpost.gateway.rest.operations import JsonSchema, RestRequest

_TEXT: JsonSchema = {"type": "string", "minLength": 1, "maxLength": 200}
_ID: JsonSchema = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_TIME: JsonSchema = {"type": "number", "minimum": 0, "maximum": 10**11}
AFTER: JsonSchema = {**_ID, "description": "Only events with a higher ID"}
BEFORE: JsonSchema = {**_ID, "description": "Only events with a lower ID"}
EVENT_LIMIT: JsonSchema = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
RUN_FILTER: JsonSchema = _TEXT
TOOL_FILTER: JsonSchema = {**_TEXT, "description": "A name; * matches any characters"}
USER_FILTER: JsonSchema = {**_TEXT, "description": "Of the caller's tenant"}
TYPE_FILTER: JsonSchema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 1000,
    "description": "Types of events, separated by commas; * matches any characters",
}
TIME_FILTERS: Mapping[str, JsonSchema] = {
    "since": {**_TIME, "description": "Unix time in seconds"},
    "until": {**_TIME, "description": "Unix time in seconds"},
}


def read_times(query: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return `since` and `until`; raise Problem if no time is between them."""
    since, until = query.get("since"), query.get("until")
    if since is not None and until is not None and since > until:
        raise Problem(400, "invalid_range", f"`since` ({since}) is after `until` ({until}); exchange them")
    return since, until


def read_types(query: Mapping[str, Any]) -> frozenset[EventCode]:
    """Return the codes of `type`, none without it; raise Problem for an unknown type."""
    if query.get("type") is None:
        return frozenset()
    try:
        return parse_event_types(query["type"].split(","))
    except ValueError as error:
        raise Problem(400, "unknown_event_type", str(error)) from None


def read_filter(request: RestRequest) -> EventFilter:
    """Return the filter of events in a query, limited to what the caller may see."""
    query = request.query
    since, until = read_times(query)
    user = request.only_user or query.get("user")
    return EventFilter(tool=query.get("tool"), codes=read_types(query), user=user, since=since, until=until)


async def find_run(request: RestRequest, run_id: str, *, code: str = "run_not_found", status: int = 404) -> RunSummary:
    """Return a run that is visible to the caller; other runs are not found."""
    run = await request.box.run(run_id, user=request.user)
    if run is None or (request.only_user is not None and run.user != request.only_user):
        raise Problem(status, code, f"unknown run {run_id!r}")
    return run
