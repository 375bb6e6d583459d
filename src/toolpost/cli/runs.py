"""`toolpost runs`: list, show, cancel and verify runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolpost.cli import completion
from toolpost.cli.commands import AllTenants, Commands, CommonOptions, check_operator, describe_user, record_not_found
from toolpost.cli.completion import resolve_id
from toolpost.cli.events import ByKey, ForUser, Since, Until, caller_of, event_text, parse_time
from toolpost.cli.output import Output, format_time
from toolpost.cli.runner import FAILED, no_source, run_with_box
from toolpost.contracts.errors import ErrorCategory, ToolError
from toolpost.contracts.events import RunFilter, RunSummary, StoredEvent
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import ArtifactRef

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox

_RECENT = 1000  # runs among which an ended call is looked for

app = Commands(help="List, show, cancel and verify runs.", no_args_is_help=True)

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
RunLimit = Annotated[int, typer.Option("--limit", min=1, help="Show at most N, newest first.")]

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


@app.command("list")
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
        caller=caller_of(key),
        since=parse_time(since),
        until=parse_time(until),
        status=status,
    )

    async def work(box: Toolbox, output: Output) -> int:
        runs = await box.runs(user=common.user, limit=limit, only=only, all_tenants=all_tenants)
        _show_runs(runs, None if only != RunFilter() or all_tenants else common.user, output)
        return 0

    run_with_box(work, common, no_source)


@app.command("show")
def show_run(common: CommonOptions, run_id: RunId, verbose: Verbose = False) -> None:
    """Show one run with its events and artifacts."""

    async def work(box: Toolbox, output: Output) -> int:
        run = await box.run(await resolve_id(box, "run", run_id, user=common.user), user=common.user)
        if run is None:
            raise record_not_found("run", run_id, common, "newest")
        events = await box.events(user=common.user, run_id=run.run_id)
        artifacts = await box.store.artifacts.list(tenant=Principal.parse(common.user).tenant, run_id=run.run_id)
        _show_run(run, events, artifacts, output, verbose=verbose)
        return 0

    run_with_box(work, common, no_source)


@app.command("cancel")
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
            raise await _not_cancelled(box, whole, common)
        if output.as_json:
            output.document({"status": "cancelling", "id": whole, "error": None})
        else:
            output.text(f"cancelling: {whole}. `toolpost runs show {whole}{output.options}` shows how it ends.")
        return 0

    run_with_box(work, common, no_source)


@app.command("verify")
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


async def _not_cancelled(box: Toolbox, run_id: str, common: CommonOptions) -> ToolError:
    """Return the error that says why a run was not cancelled."""
    runs = await box.runs(user=common.user, limit=_RECENT)
    run = await box.run(run_id, user=common.user) or next((one for one in runs if one.call_id == run_id), None)
    if run is None:
        return record_not_found("run", run_id, common, "newest")
    message = f"Run {run.run_id!r} has ended: {run.status}. It cannot be cancelled."
    return ToolError(message, category=ErrorCategory.NON_RETRYABLE_CLIENT, code="run_ended")


def _owner(run: RunSummary) -> str:
    return f"{run.tenant}:{run.user or '(forgotten)'}"


def _show_runs(runs: list[RunSummary], user: str | None, output: Output) -> None:
    """Write runs. Without any, write how `user` starts one; for None, write that no run matches the filter."""
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
