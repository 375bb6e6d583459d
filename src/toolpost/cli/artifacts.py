"""`toolpost artifacts`: large and binary results, as files of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolpost.cli import completion
from toolpost.cli.commands import Commands
from toolpost.cli.ids import whole_id
from toolpost.cli.opening import no_source
from toolpost.cli.options import Config, Json, User, whom
from toolpost.cli.output import Output, moment
from toolpost.cli.session import run_with_box
from toolpost.contracts.errors import ErrorCategory, ToolError
from toolpost.contracts.principal import Principal

if TYPE_CHECKING:
    from toolpost.contracts.storage import ArtifactRef
    from toolpost.toolbox.box import Toolbox

app = Commands(help="Get at large and binary results.", no_args_is_help=True)

Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The artifact's id, or how it begins, as a call or `artifacts list` tells it.",
        autocompletion=completion.artifact_ids,
    ),
]
Run = Annotated[
    str | None,
    typer.Option("--run", metavar="ID", help="Only those of this run.", autocompletion=completion.run_ids),
]
File = Annotated[Path, typer.Argument(metavar="FILE", help="The file to make of it, or - for stdout.")]
_STDOUT = Path("-")


@app.callback()
def _group() -> None:
    """Get at large and binary results."""


@app.command("list")
def list_artifacts(
    run: Run = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many, the newest first.")] = 50,
    config: Config = None,
    user: User = "",
    json: Json = False,
) -> None:
    """List the large and binary results of your tenant."""

    async def work(box: Toolbox, output: Output) -> int:
        run_id = None if run is None else whole_id(box, "run", run, user=user)
        found = await box.store.artifacts.list(tenant=Principal.parse(user).tenant, run_id=run_id, limit=limit)
        _show_list(found, user, output)
        return 0

    run_with_box(work, config=config, user=user, as_json=json, opening=no_source)


@app.command("save")
def save(artifact_id: Id, file: File, config: Config = None, user: User = "", json: Json = False) -> None:
    """Save an artifact as a file; one that is there already is left alone."""
    if json and file == _STDOUT:
        raise typer.BadParameter("stdout is for the JSON then; name a file", param_hint="FILE")

    async def work(box: Toolbox, output: Output) -> int:
        tenant, whole = Principal.parse(user).tenant, whole_id(box, "artifact", artifact_id, user=user)
        artifact = await box.store.artifacts.info(whole, tenant=tenant)
        if artifact is None:
            raise _not_found(artifact_id, user=user, output=output)
        data = await box.store.artifacts.read(whole, tenant=tenant)
        if file == _STDOUT:
            output.bytes(data)
            return 0
        _write(file, data)
        if output.as_json:
            output.document({"status": "ok", "file": str(file), "artifact": artifact.to_dict(), "error": None})
        else:
            output.note(f"saved: {file} ({artifact.media_type}, {artifact.size} bytes)")
        return 0

    run_with_box(work, config=config, user=user, as_json=json, opening=no_source)


def _show_list(found: list[ArtifactRef], user: str, output: Output) -> None:
    if output.as_json:
        output.document([artifact.to_dict() for artifact in found])
        return
    if not found:
        output.text(f"No artifacts for {whom(user)}: a result that is large or binary becomes one.")
        return
    rows = [(ref.id, ref.name, ref.tool_name, ref.media_type, str(ref.size), moment(ref.created_at)) for ref in found]
    output.table(["Artifact", "Name", "Tool", "Type", "Bytes", "Made"], rows)
    output.note(f"`toolpost artifacts save ID FILE{output.again}` makes a file of one.")


def _write(file: Path, data: bytes) -> None:
    try:
        with file.expanduser().open("xb") as stream:
            stream.write(data)
    except FileExistsError:
        raise ToolError(f"there is a file {str(file)!r} already; name another", code="file_exists") from None
    except OSError as error:
        raise ToolError(f"{str(file)!r} cannot be written: {error.strerror}", code="file_unwritable") from None


def _not_found(artifact_id: str, *, user: str, output: Output) -> ToolError:
    return ToolError(
        f"Artifact {artifact_id!r} not found for {whom(user)}. "
        f"`toolpost artifacts list{output.again}` shows what there is.",
        category=ErrorCategory.NON_RETRYABLE_CLIENT,
        code="artifact_not_found",
    )
