"""`toolpost events`: what happened, and what happens now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from toolpost.cli import completion
from toolpost.cli.ids import whole_id
from toolpost.cli.opening import no_source, store_alone
from toolpost.cli.options import Config, Json, User, whom
from toolpost.cli.output import Output, moment, one_line
from toolpost.cli.session import run_with_box
from toolpost.configuration.settings import parse_duration
from toolpost.contracts.errors import ErrorCategory, ToolError
from toolpost.contracts.events import EventCode, EventFilter, StoredEvent
from toolpost.contracts.suggestions import nearest

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox

_PAGE = 1000
_USUAL = 50
_POLL_S = 0.25
_SHORT = 80
_HIDDEN = frozenset({"tool_name", "correlation_id", "forgotten"})
_MANY = 10  # from here on a fraction of a number says nothing

# A tool's own reports of progress share a code with those of agents below it; people look for another word.
_PROGRESS = "PROGRESS"
_TYPES = {code.name: code for code in EventCode} | {_PROGRESS: EventCode.SUBAGENT_ACTION}


def _types(written: list[str]) -> list[str]:
    for each in written:
        name = each.upper().replace("-", "_")
        if name not in _TYPES and name not in {str(int(code)) for code in EventCode}:
            near = nearest(name, _TYPES)
            meant = f"did you mean {near}?" if near else f"they are {', '.join(sorted(_TYPES))}"
            raise typer.BadParameter(f"{each!r} is no type of event; {meant}")
    return written


def _since(written: str | None) -> float | None:
    """A point in time: so long ago, or a date and time on this machine's clock."""
    if written is None:
        return None
    try:
        return time.time() - parse_duration(written)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(written).timestamp()
    except ValueError:
        msg = f"{written!r} is no time: write how long ago (10m, 2h, 7d) or when (2026-11-16, 2026-11-16T09:30)"
        raise typer.BadParameter(msg) from None


Follow = Annotated[
    bool,
    typer.Option("--follow", "-f", help="Go on with new events until Ctrl-C; older ones with -n or --after."),
]
Run = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="ID",
        help="Only the events of this run; how its id begins will do.",
        autocompletion=completion.run_ids,
    ),
]
After = Annotated[int | None, typer.Option("--after", metavar="ID", min=0, help="All events with a higher id.")]
Limit = Annotated[
    int | None,
    typer.Option("--limit", "-n", min=1, help="At most so many, the last ones.", show_default="50, of a run all"),
]
Tool = Annotated[
    str | None,
    typer.Option(
        "--tool",
        metavar="NAME",
        help="Only those of this tool; * stands for any letters.",
        autocompletion=completion.tool_names,
    ),
]
Type = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TYPE", help="Only of this type, such as TOOL_CALL_FAILED; may be repeated."),
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Only later ones: 10m, 2h, 7d, or a date and time.")
]


class _Wanted(NamedTuple):
    """Which events somebody wants to see."""

    user: str
    run_id: str | None
    after: int | None
    limit: int | None
    only: EventFilter
    follow: bool

    @property
    def last(self) -> int | None:
        """How many at most, the last ones; None for all."""
        if self.limit is not None or self.after is not None:
            return self.limit
        return None if self.run_id is not None else _USUAL


def events(
    follow: Follow = False,
    run: Run = None,
    after: After = None,
    limit: Limit = None,
    tool: Tool = None,
    type_: Type = None,
    since: Since = None,
    config: Config = None,
    user: User = "",
    json: Json = False,
) -> None:
    """Show what happened lately, oldest first.

    With --json it is one object a line.
    """
    codes = frozenset(_code(each) for each in _types(type_ or []))
    only = EventFilter(tool=tool, codes=codes, since=_since(since))

    async def work(box: Toolbox, output: Output) -> int:
        run_id = None if run is None else whole_id(box, "run", run, user=user)
        if run_id is not None and not follow and await box.run(run_id, user=user) is None:
            raise no_such_run(run_id, user=user, output=output)
        wanted, shown = _Wanted(user, run_id, after, limit, only, follow), 0
        try:
            async for event in _stored(box, wanted):
                shown += 1
                if output.as_json:
                    output.line(event.to_dict())
                else:
                    output.text(event_text(event))
                if output.reader_gone:
                    break
        except asyncio.CancelledError:
            if not follow:  # Ctrl-C is how following ends, so it is no failure.
                raise
        if not output.as_json and not follow:
            _tell_rest(shown, wanted, output)
        return 0

    run_with_box(work, config=config, user=user, as_json=json, opening=store_alone if follow else no_source)


def no_such_run(run_id: str, *, user: str, output: Output) -> ToolError:
    """The error for a run that is not there for this user."""
    return ToolError(
        f"Run {run_id!r} not found for {whom(user)}. `toolpost runs list{output.again}` shows the newest.",
        category=ErrorCategory.NON_RETRYABLE_CLIENT,
        code="run_not_found",
    )


def event_text(event: StoredEvent) -> str:
    """An event on one line."""
    name = event.payload.get("tool_name", "")
    code = _PROGRESS if event.code is EventCode.SUBAGENT_ACTION else event.code.name
    return f"{event.id:>6}  {moment(event.at)}  {code:<20}  {name}  {_told(event)}".rstrip()


def _told(event: StoredEvent) -> str:
    """What an event says, without what is empty or was said already."""
    if event.is_forgotten:
        return "(forgotten)"
    facts = {key: value for key, value in event.payload.items() if key not in _HIDDEN and value not in (None, "")}
    if facts.get("error") == facts.get("error_message"):
        facts.pop("error", None)
    return ", ".join(f"{key}={_short(value)}" for key, value in facts.items())


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= _MANY else f"{value:.3g}"
    text = one_line(value)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


def _code(written: str) -> EventCode:
    name = written.upper().replace("-", "_")
    return EventCode(int(name)) if name.isdigit() else _TYPES[name]


def _tell_rest(shown: int, wanted: _Wanted, output: Output) -> None:
    """What to do when there is nothing to see, or may be more."""
    if not shown and wanted.only == EventFilter() and wanted.after is None:
        output.text(f"Nothing has happened yet for {whom(wanted.user)}: `toolpost tools call NAME` makes a call.")
    elif not shown:
        output.text("No event is like that.")
    elif wanted.limit is None and shown == wanted.last:
        output.note(f"These are the last {shown}; -n 200 shows more, --after 0 all.")


async def _stored(box: Toolbox, wanted: _Wanted) -> AsyncIterator[StoredEvent]:
    """The last ones, or page by page; other processes write too, so following means asking again."""
    after = wanted.after or 0
    if wanted.follow and wanted.after is None and wanted.limit is None and wanted.run_id is None:
        after = await _newest_id(box, wanted.user)
    elif wanted.last is not None:
        last = await _read(box, wanted, after=after, limit=wanted.last, newest=True)
        for event in last:
            yield event
        after = max(after, await _newest_id(box, wanted.user) if not last else last[-1].id)
        if not wanted.follow:
            return
    while True:
        page = await _read(box, wanted, after=after, limit=_PAGE)
        for event in page:
            yield event
            after = event.id
        if len(page) == _PAGE:
            continue
        if not wanted.follow:
            return
        await asyncio.sleep(_POLL_S)


async def _read(box: Toolbox, wanted: _Wanted, *, after: int, limit: int, newest: bool = False) -> list[StoredEvent]:
    return await box.events(
        user=wanted.user, run_id=wanted.run_id, after=after, limit=limit, only=wanted.only, newest=newest
    )


async def _newest_id(box: Toolbox, user: str) -> int:
    newest = await box.events(user=user, limit=1, newest=True)
    return newest[-1].id if newest else 0
