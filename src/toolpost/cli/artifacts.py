"""`toolpost artifacts`: list and save large and binary results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolpost.cli import completion
from toolpost.cli.commands import Commands, CommonOptions, describe_user, record_not_found
from toolpost.cli.completion import resolve_id
from toolpost.cli.output import Output, format_time
from toolpost.cli.runner import no_source, run_with_box
from toolpost.contracts.errors import ToolError
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import ArtifactRef

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox

_STDOUT = Path("-")

app = Commands(help="Get at large and binary results.", no_args_is_help=True)

ArtifactId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="ID of the artifact, or a unique prefix; see `artifacts list`.",
        autocompletion=completion.artifact_ids,
    ),
]
OfRun = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="ID",
        help="Only artifacts of this run; accepts a unique prefix of the ID.",
        autocompletion=completion.run_ids,
    ),
]
TargetFile = Annotated[Path, typer.Argument(metavar="FILE", help="File to write, or - for stdout.")]


@app.callback()
def _artifacts_group() -> None:
    """Get at large and binary results."""


@app.command("list")
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


@app.command("save")
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
            raise record_not_found("artifact", artifact_id, common, "existing ones")
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
