"""`toolpost runs`, `toolpost events` and `toolpost artifacts`: what the store has recorded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from toolpost.cli import completion
from toolpost.cli.commands import AllTenants, Commands, CommonOptions, check_operator, describe_user
from toolpost.cli.completion import resolve_id
from toolpost.cli.output import Output, format_json_line, format_time
from toolpost.cli.runner import FAILED, create_store, no_source, run_with_box
from toolpost.contracts.callers import KEY_ID, KEY_PREFIX
from toolpost.contracts.errors import ErrorCategory, ToolError
from toolpost.contracts.events import (
    PROGRESS,
    EventCode,
    EventFilter,
    RunFilter,
    RunSummary,
    StoredEvent,
    parse_event_types,
)
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import ArtifactRef

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox


_PAGE = 1000
_DEFAULT_LIMIT = 50
_LOOK_S = 15.0
_MAX_VALUE_CHARS = 80
_HIDDEN = frozenset({"tool_name", "correlation_id", "forgotten"})
_WHOLE_FROM = 10  # from here on a fraction of a number says nothing
_STDOUT = Path("-")

runs_app = Commands(help="List, show, cancel and verify runs.", no_args_is_help=True)

RunId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="ID of the run, or a unique prefix; see `runs list`.",
        autocompletion=completion.run_ids,
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also show the traceback of an exception raised by a tool's own code.")
]
_RECENT = 1000  # runs among which an ended call is looked for
RunLimit = Annotated[int, typer.Option("--limit", min=1, help="Show at most N, newest first.")]


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
RunStatus = Annotated[
    Literal["running", "paused", "completed", "failed"] | None,
    typer.Option("--status", help="Only runs with this status."),
]
RunTool = Annotated[
    str | None,
    typer.Option(
        "--tool",
        metavar="NAME",
        help="Only runs of this tool; * matches any characters.",
        autocompletion=completion.tool_names,
    ),
]
RunSource = Annotated[str | None, typer.Option("--source", metavar="NAME", help="Only runs of tools of this source.")]
RunText = Annotated[
    str | None,
    typer.Option("--search", metavar="TEXT", help="Only runs with this text in the ID, the tool or the user."),
]


def _caller_of(key: str | None) -> str | None:
    """Return the ID of the caller with a key, given by its ID or whole; the secret of a whole key is not used."""
    if key is None:
        return None
    is_whole = key.startswith(KEY_PREFIX)
    return f"{KEY_ID}{key.removeprefix(KEY_PREFIX).partition('_')[0] if is_whole else key.removeprefix(KEY_ID)}"


@runs_app.command("list")
def list_runs(
    common: CommonOptions,
    limit: RunLimit = 50,
    for_: ForUser = None,
    key: ByKey = None,
    since: Since = None,
    until: Until = None,
    status: RunStatus = None,
    tool: RunTool = None,
    source: RunSource = None,
    search: RunText = None,
    all_tenants: AllTenants = False,
) -> None:
    """List the newest runs of your tenant."""
    check_operator(common.user, all_tenants=all_tenants)
    only = RunFilter(
        tool=tool,
        source=source,
        q=search,
        user=for_,
        caller=_caller_of(key),
        since=parse_time(since),
        until=parse_time(until),
        status=status,
    )

    async def work(box: Toolbox, output: Output) -> int:
        runs = await box.runs(user=common.user, limit=limit, only=only, all_tenants=all_tenants)
        _show_runs(runs, None if only != RunFilter() or all_tenants else common.user, output)
        return 0

    run_with_box(work, common, no_source)


@runs_app.command("show")
def show_run(common: CommonOptions, run_id: RunId, verbose: Verbose = False) -> None:
    """Show one run with its events and artifacts."""

    async def work(box: Toolbox, output: Output) -> int:
        run = await box.run(await resolve_id(box, "run", run_id, user=common.user), user=common.user)
        if run is None:
            raise _not_found("run", run_id, common.user, output, "newest")
        events = await box.events(user=common.user, run_id=run.run_id)
        artifacts = await box.store.artifacts.list(tenant=Principal.parse(common.user).tenant, run_id=run.run_id)
        _show_run(run, events, artifacts, output, verbose=verbose)
        return 0

    run_with_box(work, common, no_source)


@runs_app.command("cancel")
def cancel_run(
    common: CommonOptions,
    run_id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="ID of a run or of one of its calls, or a unique prefix.",
            autocompletion=completion.run_ids,
        ),
    ],
) -> None:
    """Cancel a run.

    The run may be in another process. Exits with 0 if the cancellation is recorded, and with 1 if the run does not
    exist or has ended.
    """

    async def work(box: Toolbox, output: Output) -> int:
        whole = await resolve_id(box, "call", run_id, user=common.user)
        if not await box.cancel(whole, by=common.user):
            raise await _not_cancelled(box, whole, user=common.user, output=output)
        if output.as_json:
            output.document({"status": "cancelling", "id": whole, "error": None})
        else:
            output.text(f"cancelling: {whole}. `toolpost runs show {whole}{output.options}` shows how it ends.")
        return 0

    run_with_box(work, common, no_source)


@runs_app.command("verify")
def verify_runs(
    common: CommonOptions,
    run_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="Only this run. [default: the whole data folder]", autocompletion=completion.run_ids
        ),
    ] = None,
) -> None:
    """Verify the integrity of the event log.

    Reports runs and events that were changed, removed, added or restored outside Toolpost, and caller keys, journal
    entries and outcomes of idempotency keys that were changed or added. Exits with 1 if it finds any.
    """

    async def work(box: Toolbox, output: Output) -> int:
        tenant = None if run_id is None else Principal.parse(common.user).tenant
        whole = None if run_id is None else await resolve_id(box, "run", run_id, user=common.user)
        problems = await box.store.events.verify(whole, tenant=tenant)
        if output.as_json:
            output.document({"status": "changed" if problems else "verified", "problems": problems})
        for problem in () if output.as_json else problems:
            output.text(problem)
        if not problems and not output.as_json:
            output.text("verified: no changes found.")
        return FAILED if problems else 0

    run_with_box(work, common, no_source)


async def _not_cancelled(box: Toolbox, run_id: str, *, user: str, output: Output) -> ToolError:
    """Return the error that says why a run was not cancelled."""
    runs = await box.runs(user=user, limit=_RECENT)
    run = await box.run(run_id, user=user) or next((one for one in runs if one.call_id == run_id), None)
    if run is None:
        return _not_found("run", run_id, user, output, "newest")
    message = f"Run {run.run_id!r} has ended: {run.status}. It cannot be cancelled."
    return ToolError(message, category=ErrorCategory.NON_RETRYABLE_CLIENT, code="run_ended")


def _owner(run: RunSummary) -> str:
    return f"{run.tenant}:{run.user or '(forgotten)'}"


def _show_runs(runs: list[RunSummary], user: str | None, output: Output) -> None:
    """Write runs; without any, what makes the first of a user, or for None that none matches."""
    if output.as_json:
        output.document([run.to_dict() for run in runs])
        return
    if not runs and user is None:
        output.text("No runs match.")
        return
    if not runs and user is not None:
        output.text(f"No runs yet for {describe_user(user)}: `toolpost tools call NAME` starts one.")
        return
    rows = [
        (run.run_id, run.status, run.tool_name, _owner(run), format_time(run.started_at), str(run.events))
        for run in runs
    ]
    output.table(["Run", "Status", "Tool", "For", "Started", "Events"], rows)
    output.note(f"`toolpost runs show ID{output.options}` shows the events of one.")


def _show_run(
    run: RunSummary, events: list[StoredEvent], artifacts: list[ArtifactRef], output: Output, *, verbose: bool
) -> None:
    if output.as_json:
        log = [{**event.to_dict(), **({"traceback": event.traceback} if verbose else {})} for event in events]
        output.document({**run.to_dict(), "log": log, "artifacts": [artifact.to_dict() for artifact in artifacts]})
        return
    output.text(f"{run.status}: {run.tool_name} for {_owner(run)}, started {format_time(run.started_at)}")
    for event in events:
        output.text(event_text(event))
        for line in event.traceback.splitlines() if verbose else ():
            output.text(f"        {line}")
    for artifact in artifacts:
        output.text(f"artifact {artifact.id}: {artifact.name or artifact.tool_name}, {artifact.size} bytes")


def _codes(types: list[str]) -> frozenset[EventCode]:
    try:
        return parse_event_types(types)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


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
        caller=_caller_of(key),
    )

    async def work(box: Toolbox, output: Output) -> int:
        run_id = None if run is None else await resolve_id(box, "run", run, user=common.user)
        if run_id is not None and not (follow or all_tenants) and await box.run(run_id, user=common.user) is None:
            raise _not_found("run", run_id, common.user, output, "newest")
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


def _not_found(kind: Literal["run", "artifact"], given_id: str, user: str, output: Output, which: str) -> ToolError:
    """Return the error for a run or artifact that this user does not have."""
    return ToolError(
        f"{kind.capitalize()} {given_id!r} not found for {describe_user(user)}. "
        f"`toolpost {kind}s list{output.options}` shows the {which}.",
        category=ErrorCategory.NON_RETRYABLE_CLIENT,
        code=f"{kind}_not_found",
    )


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


artifacts_app = Commands(help="Get at large and binary results.", no_args_is_help=True)

ArtifactId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="ID of the artifact, or a unique prefix; see `artifacts list`.",
        autocompletion=completion.artifact_ids,
    ),
]
TargetFile = Annotated[Path, typer.Argument(metavar="FILE", help="File to write, or - for stdout.")]


@artifacts_app.callback()
def _artifacts_group() -> None:
    """Get at large and binary results."""


@artifacts_app.command("list")
def list_artifacts(
    common: CommonOptions,
    run: OfRun = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most N, newest first.")] = 50,
) -> None:
    """List the large and binary results of your tenant."""

    async def work(box: Toolbox, output: Output) -> int:
        run_id = None if run is None else await resolve_id(box, "run", run, user=common.user)
        artifacts = await box.store.artifacts.list(
            tenant=Principal.parse(common.user).tenant, run_id=run_id, limit=limit
        )
        _show_artifacts(artifacts, common.user, output)
        return 0

    run_with_box(work, common, no_source)


@artifacts_app.command("save")
def save(common: CommonOptions, artifact_id: ArtifactId, file: TargetFile) -> None:
    """Save an artifact as a file; never overwrite an existing file."""
    if common.json and file == _STDOUT:
        raise typer.BadParameter("with --json, stdout is for the JSON; name a file", param_hint="FILE")

    async def work(box: Toolbox, output: Output) -> int:
        tenant, whole = (
            Principal.parse(common.user).tenant,
            await resolve_id(box, "artifact", artifact_id, user=common.user),
        )
        artifact = await box.store.artifacts.info(whole, tenant=tenant)
        if artifact is None:
            raise _not_found("artifact", artifact_id, common.user, output, "existing ones")
        data = await box.store.artifacts.read(whole, tenant=tenant)
        if file == _STDOUT:
            output.bytes(data)
            return 0
        _write_file(file, data)
        if output.as_json:
            output.document({"status": "ok", "file": str(file), "artifact": artifact.to_dict(), "error": None})
        else:
            output.note(f"saved: {file} ({artifact.media_type}, {artifact.size} bytes)")
        return 0

    run_with_box(work, common, no_source)


def _show_artifacts(artifacts: list[ArtifactRef], user: str, output: Output) -> None:
    if output.as_json:
        output.document([artifact.to_dict() for artifact in artifacts])
        return
    if not artifacts:
        output.text(f"No artifacts for {describe_user(user)}: large and binary results are stored as artifacts.")
        return
    rows = [
        (ref.id, ref.name, ref.tool_name, ref.media_type, str(ref.size), format_time(ref.created_at))
        for ref in artifacts
    ]
    output.table(["Artifact", "Name", "Tool", "Type", "Bytes", "Made"], rows)
    output.note(f"`toolpost artifacts save ID FILE{output.options}` saves one as a file.")


def _write_file(file: Path, data: bytes) -> None:
    place = file.expanduser()
    try:
        stream = place.open("xb")
    except FileExistsError:
        raise ToolError(f"the file {str(file)!r} already exists; name another", code="file_exists") from None
    except OSError as error:
        raise _unwritable(file, error) from None
    try:
        with stream:
            stream.write(data)
    except OSError as error:
        place.unlink(missing_ok=True)  # a part of the file would be taken for all of it
        raise _unwritable(file, error) from None


def _unwritable(file: Path, error: OSError) -> ToolError:
    message = f"{str(file)!r} cannot be written: {error.strerror}; free some space, or name another file"
    return ToolError(message, code="file_unwritable")
