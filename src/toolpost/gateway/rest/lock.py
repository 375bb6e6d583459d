"""Operations on the lock file: show it, compare it with the current tools, and approve shown differences."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from toolpost.catalog.lock import Difference, Lock, compare
from toolpost.contracts.errors import ConfigError
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.schema_builders import ref
from toolpost.toolbox.lock_comparison import compare_with_lock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.toolbox.lock_comparison import LockComparison

OPERATIONS = Operations("lock")
_NAME = {"type": "string", "minLength": 1, "maxLength": 400}
_NAMES = {"type": "array", "items": _NAME, "maxItems": 20_000}
_APPROVAL = {
    "type": "object",
    "properties": {
        "tools": {**_NAMES, "description": "Full names of tools that differ"},
        "sources": {**_NAMES, "description": "Sources: all their tools that differ, or that are not pinned"},
        "hashes": {
            "type": "object",
            "description": "The `hash` of each tool as it was shown; null for one that is gone",
            "additionalProperties": {"type": ["string", "null"], "maxLength": 200},
            "maxProperties": 20_000,
        },
    },
    "required": ["hashes"],
    "additionalProperties": False,
}


@OPERATIONS.declare("GET", "/lock", scope=("admin",), answers={200: ref("Lock")}, problems=(409,))
async def show_lock(request: RestRequest) -> Response:
    """Show the lock file: the pinned tools of each source, and the sources that it lacks."""
    comparison = await _compare(request)
    counts = {source: len(pins) for source, pins in comparison.lock.sources.items()}
    return JsonResponse(
        {
            "path": comparison.lock.path.name,
            "exists": comparison.lock.path.exists(),
            "sources": counts,
            "unpinned": comparison.unpinned,
            "failed": _failed(request, comparison),
        }
    )


@OPERATIONS.declare(
    "GET",
    "/lock/diff",
    scope=("admin",),
    query={"source": {"type": "string", "minLength": 1, "maxLength": 200}},
    answers={200: ref("LockDiff")},
    problems=(404, 409),
)
async def show_lock_diff(request: RestRequest) -> Response:
    """Compare the current tools with the lock file, or with their definitions as first seen."""
    comparison, source = await _compare(request), request.query.get("source")
    if source is not None and source not in {*comparison.listed, *comparison.lock.sources, *comparison.failed}:
        raise Problem(404, "source_not_found", f"unknown source {source!r}")
    found = [one for one in _differences(comparison) if source in (None, one.source)]
    return JsonResponse(
        {
            "differences": [_to_dict(one, pinned=one.source in comparison.lock.sources) for one in found],
            "failed": {name: why for name, why in _failed(request, comparison).items() if source in (None, name)},
        }
    )


@OPERATIONS.declare(
    "POST",
    "/lock/approve",
    scope=("admin",),
    operator=True,
    takes=_APPROVAL,
    answers={200: ref("LockApproval")},
    problems=(404, 409),
)
async def approve_lock(request: RestRequest) -> Response:
    """Approve tools as they were shown, and resume the calls that wait for them."""
    comparison, body = await _compare(request), request.body
    chosen = _select(comparison, body.get("tools", ()), body.get("sources", ()))
    _check_hashes(chosen, body["hashes"])
    try:
        await asyncio.to_thread(_accept, comparison, chosen)
    except ConfigError as error:
        raise Problem(409, "lock_not_written", f"nothing was approved: {error}") from None
    registry = request.box.registry
    for one in chosen:
        entry = registry.find(one.name) if registry.has(one.name) else None
        if entry is not None and entry.unaccepted is not None:
            entry.unaccepted.is_settled()
    await request.box.pending.continue_accepted(by=request.user)
    return JsonResponse({"approved": [one.name for one in chosen], "path": comparison.lock.path.name})


async def _compare(request: RestRequest) -> LockComparison:
    settings = request.box.settings
    if settings.lock is None:
        detail = "pinning is disabled by `lock: null` in the configuration; remove that line to use the lock file"
        raise Problem(409, "no_lock", detail)
    try:
        comparison = compare_with_lock(request.box, settings, Lock(settings.lock))
        _ = comparison.lock.sources
    except ConfigError as error:
        raise Problem(409, "lock_unreadable", str(error)) from None
    return comparison


def _differences(comparison: LockComparison) -> list[Difference]:
    """Return all differences; every tool of a source that is not pinned, and did not change, is new."""
    found = comparison.differences()
    known = {one.name for one in found}
    for source in comparison.unpinned:
        found += [one for one in compare(source, {}, comparison.listed[source]) if one.name not in known]
    return found


def _select(comparison: LockComparison, tools: Sequence[str], sources: Sequence[str]) -> list[Difference]:
    """Return the differences of these tools and sources; raise Problem for a name without a difference."""
    found = _differences(comparison)
    for name in (*tools, *sources):
        if not any(name in (one.name, one.source) for one in found):
            detail = f"{name!r} does not differ from the lock file; GET /api/v1/lock/diff lists what does"
            raise Problem(404, "no_difference", detail)
    chosen = [one for one in found if one.name in tools or one.source in sources]
    for source in {one.source for one in chosen if one.source in comparison.unpinned and one.kind == "new"}:
        if any(one.source == source and one not in chosen for one in found):
            detail = f"{source!r} is not pinned yet, so all its tools are pinned together: name it in `sources`"
            raise Problem(409, "source_not_pinned", detail)
    return chosen


def _check_hashes(chosen: Sequence[Difference], shown: Mapping[str, str | None]) -> None:
    """Raise Problem unless each tool is as it was shown."""
    if not chosen:
        raise Problem(422, "invalid_body", "the body is invalid: name `tools` or `sources` to approve")
    stale = [one.name for one in chosen if one.name not in shown or shown[one.name] != _hash(one)]
    if stale:
        detail = (
            f"not as they were shown: {', '.join(stale[:20])}; nothing was approved. Review GET /api/v1/lock/diff again"
        )
        raise Problem(409, "lock_changed", detail, errors=stale)


def _accept(comparison: LockComparison, chosen: Sequence[Difference]) -> None:
    """Accept these differences; all tools of a source that is not pinned are pinned together."""
    pinned = {name: dict(pins) for name, pins in comparison.lock.sources.items()}
    new = {one.source for one in chosen if one.source in comparison.unpinned and one.kind == "new"}
    if new:
        comparison.lock.write({**pinned, **{source: dict(comparison.listed[source]) for source in new}})
    if rest := [one for one in chosen if one.source not in new]:
        comparison.accept(rest)


def _to_dict(one: Difference, *, pinned: bool) -> dict[str, Any]:
    return {**one.to_dict(), "pinned": pinned, "hash": _hash(one), "pinned_hash": one.before and one.before.hash}


def _hash(one: Difference) -> str | None:
    return None if one.after is None else one.after.hash


def _failed(request: RestRequest, comparison: LockComparison) -> dict[str, str]:
    return {name: request.box.redactor.text(why) for name, why in comparison.failed.items()}
