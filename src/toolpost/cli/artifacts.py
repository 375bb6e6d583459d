"""`toolpost artifacts`: large and binary results, as files of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolpost.cli.opening import no_source
from toolpost.cli.options import Config, Json, User, whom
from toolpost.cli.output import Output
from toolpost.cli.session import run_with_box
from toolpost.contracts.errors import ErrorCategory, ToolError
from toolpost.contracts.principal import Principal

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox

app = typer.Typer(help="Get at large and binary results.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The artifact's id, as a call or `runs show` tells it.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="The file to make of it, or - for stdout.")]
_STDOUT = Path("-")


@app.callback()
def _group() -> None:
    """Get at large and binary results."""


@app.command("save")
def save(artifact_id: Id, file: File, config: Config = None, user: User = "", json: Json = False) -> None:
    """Save an artifact as a file; one that is there already is left alone."""
    if json and file == _STDOUT:
        raise typer.BadParameter("stdout is for the JSON then; name a file", param_hint="FILE")

    async def work(box: Toolbox, output: Output) -> int:
        tenant = Principal.parse(user).tenant
        artifact = await box.store.artifacts.info(artifact_id, tenant=tenant)
        if artifact is None:
            raise _not_found(artifact_id, user=user, output=output)
        data = await box.store.artifacts.read(artifact_id, tenant=tenant)
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
        f"`toolpost runs show ID{output.again}` lists the artifacts of a run.",
        category=ErrorCategory.NON_RETRYABLE_CLIENT,
        code="artifact_not_found",
    )
