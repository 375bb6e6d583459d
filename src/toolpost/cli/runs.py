"""`toolpost runs`: what was run, where it stands, and stopping it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolpost.cli import completion
from toolpost.cli.commands import Commands
from toolpost.cli.events import event_text, no_such_run
from toolpost.cli.ids import whole_id
from toolpost.cli.opening import no_source
from toolpost.cli.options import Config, Json, User, whom
from toolpost.cli.output import Output, moment
from toolpost.cli.session import FAILED, run_with_box
from toolpost.contracts.errors import ErrorCategory, ToolError
from toolpost.contracts.events import RunSummary, StoredEvent
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import ArtifactRef

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox

app = Commands(help="See, cancel and verify runs.", no_args_is_help=True)

Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The run's id, or how it begins, as `runs list` shows it.",
        autocompletion=completion.run_ids,
    ),
]
_RECENT = 1000  # runs among which an ended call is looked for
Limit = Annotated[int, typer.Option("--limit", min=1, help="At most so many, the newest first.")]


@app.command("list")
def list_runs(limit: Limit = 50, config: Config = None, user: User = "", json: Json = False) -> None:
    """List the newest runs of your tenant."""

    async def work(box: Toolbox, output: Output) -> int:
        _show_list(await box.runs(user=user, limit=limit), user, output)
        return 0

    run_with_box(work, config=config, user=user, as_json=json, opening=no_source)


@app.command("show")
def show_run(run_id: Id, config: Config = None, user: User = "", json: Json = False) -> None:
    """Show one run with its events and artifacts."""

    async def work(box: Toolbox, output: Output) -> int:
        run = await box.run(whole_id(box, "run", run_id, user=user), user=user)
        if run is None:
            raise no_such_run(run_id, user=user, output=output)
        events = await box.events(user=user, run_id=run.run_id)
        artifacts = await box.store.artifacts.list(tenant=Principal.parse(user).tenant, run_id=run.run_id)
        _show_run(run, events, artifacts, output)
        return 0

    run_with_box(work, config=config, user=user, as_json=json, opening=no_source)


@app.command("cancel")
def cancel_run(
    run_id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The id of a run or of one of its calls, or how it begins.",
            autocompletion=completion.run_ids,
        ),
    ],
    config: Config = None,
    user: User = "",
    json: Json = False,
) -> None:
    """Cancel a run.

    It may run in another process. Exits 0 when the wish is recorded, 1 when there is no such run or it has ended.
    """

    async def work(box: Toolbox, output: Output) -> int:
        whole = whole_id(box, "run or call", run_id, user=user)
        if not await box.cancel(whole, by=user):
            raise await _not_cancelled(box, whole, user=user, output=output)
        if output.as_json:
            output.document({"status": "cancelling", "id": whole, "error": None})
        else:
            output.text(f"cancelling: {whole}. `toolpost runs show {whole}{output.again}` shows how it ends.")
        return 0

    run_with_box(work, config=config, user=user, as_json=json, opening=no_source)


@app.command("verify")
def verify_runs(
    run_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="One run; else the whole data folder.", autocompletion=completion.run_ids),
    ] = None,
    config: Config = None,
    user: User = "",
    json: Json = False,
) -> None:
    """Look whether anybody changed the record from outside.

    Finds runs and events that were changed, removed, added or put back. Exits 0 when there are none, 1 when there are.
    """

    async def work(box: Toolbox, output: Output) -> int:
        tenant = None if run_id is None else Principal.parse(user).tenant
        whole = None if run_id is None else whole_id(box, "run", run_id, user=user)
        problems = await box.store.events.verify(whole, tenant=tenant)
        if output.as_json:
            output.document({"status": "changed" if problems else "verified", "problems": problems})
        for problem in () if output.as_json else problems:
            output.text(problem)
        if not problems and not output.as_json:
            output.text("verified: nothing was changed from outside.")
        return FAILED if problems else 0

    run_with_box(work, config=config, user=user, as_json=json, opening=no_source)


async def _not_cancelled(box: Toolbox, run_id: str, *, user: str, output: Output) -> ToolError:
    """Why there was nothing to cancel."""
    runs = await box.runs(user=user, limit=_RECENT)
    run = await box.run(run_id, user=user) or next((one for one in runs if one.call_id == run_id), None)
    if run is None:
        return no_such_run(run_id, user=user, output=output)
    said = f"Run {run.run_id!r} has ended: {run.status}. There is nothing to cancel."
    return ToolError(said, category=ErrorCategory.NON_RETRYABLE_CLIENT, code="run_ended")


def _whose(run: RunSummary) -> str:
    return f"{run.tenant}:{run.user or '(forgotten)'}"


def _show_list(runs: list[RunSummary], user: str, output: Output) -> None:
    if output.as_json:
        output.document([run.to_dict() for run in runs])
        return
    if not runs:
        output.text(f"No runs yet for {whom(user)}: `toolpost tools call NAME` makes one.")
        return
    rows = [
        (run.run_id, run.status, run.tool_name, _whose(run), moment(run.started_at), str(run.events)) for run in runs
    ]
    output.table(["Run", "Status", "Tool", "For", "Started", "Events"], rows)
    output.note(f"`toolpost runs show ID{output.again}` shows what happened in one.")


def _show_run(run: RunSummary, events: list[StoredEvent], artifacts: list[ArtifactRef], output: Output) -> None:
    if output.as_json:
        log = [event.to_dict() for event in events]
        output.document({**run.to_dict(), "log": log, "artifacts": [artifact.to_dict() for artifact in artifacts]})
        return
    output.text(f"{run.status}: {run.tool_name} for {_whose(run)}, started {moment(run.started_at)}")
    for event in events:
        output.text(event_text(event))
    for artifact in artifacts:
        output.text(f"artifact {artifact.id}: {artifact.name or artifact.tool_name}, {artifact.size} bytes")
