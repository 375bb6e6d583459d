"""`toolpost events`: what happened, and what happens now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolpost.cli.opening import no_source
from toolpost.cli.options import Config, Json, User, whom
from toolpost.cli.output import Output, moment, one_line
from toolpost.cli.session import run_with_box
from toolpost.contracts.errors import ErrorCategory, ToolError
from toolpost.contracts.events import StoredEvent

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox

_PAGE = 1000
_POLL_S = 0.25
_SHORT = 80

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on with new events until Ctrl-C.")]
Run = Annotated[str | None, typer.Option("--run", metavar="ID", help="Only the events of this run.")]
After = Annotated[int, typer.Option("--after", metavar="ID", min=0, help="Only events with a higher id.")]


def events(
    follow: Follow = False,
    run: Run = None,
    after: After = 0,
    config: Config = None,
    user: User = "",
    json: Json = False,
) -> None:
    """Show what happened, oldest first.

    With --json it is one object a line.
    """

    async def work(box: Toolbox, output: Output) -> int:
        if run is not None and not follow and await box.run(run, user=user) is None:
            raise no_such_run(run, user=user, output=output)
        try:
            async for event in _stored(box, user=user, run_id=run, after=after, follow=follow):
                if output.as_json:
                    output.line(event.to_dict())
                else:
                    output.text(event_text(event))
        except asyncio.CancelledError:
            if not follow:  # Ctrl-C is how following ends, so it is no failure.
                raise
        return 0

    run_with_box(work, config=config, user=user, as_json=json, opening=no_source)


def no_such_run(run_id: str, *, user: str, output: Output) -> ToolError:
    """The error for a run that is not there for this user."""
    return ToolError(
        f"Run {run_id!r} not found for {whom(user)}. `toolpost runs list{output.again}` shows the newest.",
        category=ErrorCategory.NON_RETRYABLE_CLIENT,
        code="run_not_found",
    )


def event_text(event: StoredEvent) -> str:
    """An event on one line."""
    facts = {key: value for key, value in event.payload.items() if key not in ("tool_name", "correlation_id")}
    told = ", ".join(f"{key}={_short(value)}" for key, value in facts.items())
    name = event.payload.get("tool_name", "")
    return f"{event.id:>6}  {moment(event.at)}  {event.code.name:<20}  {name}  {told}".rstrip()


def _short(value: Any) -> str:
    text = one_line(value)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


async def _stored(
    box: Toolbox, *, user: str, run_id: str | None, after: int, follow: bool
) -> AsyncIterator[StoredEvent]:
    """Page by page; other processes write too, so following means asking again."""
    while True:
        page = await box.events(user=user, run_id=run_id, after=after, limit=_PAGE)
        for event in page:
            yield event
            after = event.id
        if len(page) == _PAGE:
            continue
        if not follow:
            return
        await asyncio.sleep(_POLL_S)
