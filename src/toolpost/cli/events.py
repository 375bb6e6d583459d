"""`toolpost events`: the events that the store has recorded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from toolpost.cli import completion
from toolpost.cli.commands import AllTenants, CommonOptions, check_operator, describe_user, record_not_found
from toolpost.cli.completion import resolve_id
from toolpost.cli.output import Output, format_json_line, format_time
from toolpost.cli.runner import create_store, no_source, run_with_box
from toolpost.contracts.callers import KEY_ID, KEY_PREFIX
from toolpost.contracts.events import PROGRESS, EventCode, EventFilter, StoredEvent, parse_event_types

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox

_PAGE = 1000
_DEFAULT_LIMIT = 50
_LOOK_S = 15.0
_MAX_VALUE_CHARS = 80
_HIDDEN = frozenset({"tool_name", "correlation_id", "forgotten"})
_WHOLE_FROM = 10  # larger numbers are shown without a fraction

ForUser = Annotated[
    str | None, typer.Option("--for", metavar="USER", help="Only for this user: the name without the tenant.")
]
ByKey = Annotated[
    str | None,
    typer.Option(
        "--key", metavar="ID", help="Only calls with this caller key, also if it was revoked; see `keys list`."
    ),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only after this time: 10m, 2h, 7d ago, or a date and time."),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only before this time: 10m, 2h, 7d ago, or a date and time."),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow", "-f", help="Continue with new events until Ctrl-C; include older ones with -n or --after."
    ),
]
OfRun = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="ID",
        help="Only events of this run; accepts a unique prefix of the ID.",
        autocompletion=completion.run_ids,
    ),
]
After = Annotated[int | None, typer.Option("--after", metavar="ID", min=0, help="Show all events with a higher ID.")]
EventLimit = Annotated[
    int | None,
    typer.Option("--limit", "-n", min=1, help="Show only the last N events.", show_default="50; with --run: all"),
]
Tool = Annotated[
    str | None,
    typer.Option(
        "--tool",
        metavar="NAME",
        help="Only events of this tool; * matches any characters.",
        autocompletion=completion.tool_names,
    ),
]
Type = Annotated[
    list[str] | None,
    typer.Option(
        "--type", metavar="TYPE", help="Only events of this type, such as TOOL_CALL_FAILED or TOOL_*. Can be repeated."
    ),
]


class _EventQuery(NamedTuple):
    """Filter and range of the events to show."""

    user: str
    run_id: str | None
    after: int | None
    limit: int | None
    only: EventFilter
    follow: bool
    all_tenants: bool

    @property
    def last(self) -> int | None:
        """Return how many of the last events to show; None for all."""
        if self.limit is not None or self.after is not None:
            return self.limit
        return None if self.run_id is not None else _DEFAULT_LIMIT


def events(
    common: CommonOptions,
    *,
    follow: Follow = False,
    run: OfRun = None,
    after: After = None,
    limit: EventLimit = None,
    tool: Tool = None,
    type_: Type = None,
    for_: ForUser = None,
    key: ByKey = None,
    since: Since = None,
    until: Until = None,
    all_tenants: AllTenants = False,
) -> None:
    """Show recent events, oldest first.

    With --json, prints one object per line.
    """
    codes = _codes(type_ or [])
    check_operator(common.user, all_tenants=all_tenants)
    only = EventFilter(
        tool=tool,
        codes=codes,
        since=parse_time(since),
        until=parse_time(until),
        user=for_,
        caller=caller_of(key),
    )

    async def work(box: Toolbox, output: Output) -> int:
        run_id = None if run is None else await resolve_id(box, "run", run, user=common.user)
        if run_id is not None and not (follow or all_tenants) and await box.run(run_id, user=common.user) is None:
            raise record_not_found("run", run_id, common, "newest")
        wanted, shown = _EventQuery(common.user, run_id, after, limit, only, follow, all_tenants), 0
        try:
            async for event in _read_events(box, wanted):
                shown += 1
                if output.as_json:
                    output.line(event.to_dict())
                else:
                    output.text(event_text(event))
                if output.reader_gone:
                    break
        except asyncio.CancelledError:
            if not follow:  # Ctrl-C is how following ends, so it is not a failure.
                raise
        if not output.as_json and not follow:
            _report_rest(shown, wanted, output)
        return 0

    run_with_box(work, common, create_store if follow else no_source)


def _codes(types: list[str]) -> frozenset[EventCode]:
    try:
        return parse_event_types(types)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def caller_of(key: str | None) -> str | None:
    """Return the ID of the caller with a key, given by its ID or whole; the secret of a whole key is not used."""
    if key is None:
        return None
    is_whole = key.startswith(KEY_PREFIX)
    return f"{KEY_ID}{key.removeprefix(KEY_PREFIX).partition('_')[0] if is_whole else key.removeprefix(KEY_ID)}"


def parse_time(text: str | None) -> float | None:
    """Parse a duration before now, or a local date and time."""
    from toolpost.configuration.settings import parse_duration

    if text is None:
        return None
    try:
        return time.time() - parse_duration(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        msg = f"{text!r} is not a time: write how long ago (10m, 2h, 7d) or when (2026-11-16, 2026-11-16T09:30)"
        raise typer.BadParameter(msg) from None


def event_text(event: StoredEvent) -> str:
    """Format an event on one line."""
    name = event.payload.get("tool_name", "")
    code = PROGRESS if event.code is EventCode.SUBAGENT_ACTION else event.code.name
    is_request = event.code is EventCode.TOOL_CALL_REQUESTED and event.user
    whose = f"for {event.tenant}:{event.user}  " if is_request else ""
    return f"{event.id:>6}  {format_time(event.at)}  {code:<20}  {name}  {whose}{_payload_text(event)}".rstrip()


def _payload_text(event: StoredEvent) -> str:
    """Format the payload of an event without empty and repeated values."""
    if event.is_forgotten:
        return "(forgotten)"
    facts = {key: value for key, value in event.payload.items() if key not in _HIDDEN and value not in (None, "")}
    if facts.get("error") == facts.get("error_message"):
        facts.pop("error", None)
    return ", ".join(f"{key}={_short(value)}" for key, value in facts.items())


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= _WHOLE_FROM else f"{value:.3g}"
    text = format_json_line(value)
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}…"


def _report_rest(shown: int, wanted: _EventQuery, output: Output) -> None:
    """Say what to do when no event was shown, or when there may be more."""
    if not shown and wanted.only == EventFilter() and wanted.after is None:
        output.text(f"No events yet for {describe_user(wanted.user)}: `toolpost tools call NAME` makes a call.")
    elif not shown:
        output.text("No events match.")
    elif wanted.limit is None and shown == wanted.last:
        output.note(f"These are the last {shown} events; -n 200 shows more, --after 0 shows all.")


async def _read_events(box: Toolbox, wanted: _EventQuery) -> AsyncIterator[StoredEvent]:
    """Read the last events, or all page by page; wait for new ones when following."""
    after = wanted.after or 0
    if wanted.follow and wanted.after is None and wanted.limit is None and wanted.run_id is None:
        after = await _newest_id(box, wanted)
    elif wanted.last is not None:
        last = await _read_page(box, wanted, after=after, limit=wanted.last, newest=True)
        for event in last:
            yield event
        after = max(after, await _newest_id(box, wanted) if not last else last[-1].id)
        if not wanted.follow:
            return
    position = after
    while True:
        page = await _read_page(box, wanted, after=after, limit=_PAGE)
        for event in page:
            yield event
            after = event.id
        if len(page) == _PAGE:
            continue
        if not wanted.follow:
            return
        after = position = max(after, position)  # events that are not wanted were read, too
        position = await box.store.events.wait(position, timeout_s=_LOOK_S)


async def _read_page(
    box: Toolbox, wanted: _EventQuery, *, after: int, limit: int, newest: bool = False
) -> list[StoredEvent]:
    return await box.events(
        user=wanted.user,
        run_id=wanted.run_id,
        after=after,
        limit=limit,
        only=wanted.only,
        newest=newest,
        all_tenants=wanted.all_tenants,
    )


async def _newest_id(box: Toolbox, wanted: _EventQuery) -> int:
    newest = await box.events(user=wanted.user, limit=1, newest=True, all_tenants=wanted.all_tenants)
    return newest[-1].id if newest else 0
