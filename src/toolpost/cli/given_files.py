"""Files of this machine that a person gives to a call: kept as artifacts, which tools take as files."""

from __future__ import annotations

import mimetypes
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import ArtifactRef
from toolpost.schema.json_values import is_object
from toolpost.web.content import OCTETS

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox

_OPTION = "--file"


class GivenFile(NamedTuple):
    """A file, and where among the arguments it goes."""

    place: tuple[str, ...]
    path: Path
    data: bytes


def given_files(written: Sequence[str], arguments: Any) -> list[GivenFile]:
    """Read `ARGUMENT=PATH`, where a dot leads into an object; anything else is a wrong command line."""
    files = [_given(pair) for pair in written]
    if files and not is_object(arguments):
        raise typer.BadParameter("only arguments that are an object have room for files", param_hint="--args")
    for file in files:
        _holder(arguments, file.place)
    return files


async def keep(files: Sequence[GivenFile], arguments: Any, box: Toolbox, *, user: str, run_id: str) -> None:
    """Keep the files as artifacts of a run, and put them among the arguments of its call."""
    for place, path, data in files:
        ref = ArtifactRef(
            id="",
            sha256="",
            size=0,
            media_type=mimetypes.guess_type(path.name)[0] or OCTETS,
            name=path.name,
            tenant=Principal.parse(user).tenant,
            run_id=run_id,
            call_id="",
            tool_name="",
            created_at=time.time(),
        )
        artifact = await box.store.artifacts.put(data, ref)
        _holder(arguments, place)[place[-1]] = {"artifact_id": artifact.id, "filename": path.name}


def _given(pair: str) -> GivenFile:
    argument, equals, path = pair.partition("=")
    place = tuple(argument.split("."))
    if not equals or not path or not all(place):
        raise typer.BadParameter("write ARGUMENT=PATH, such as body.file=report.pdf", param_hint=_OPTION)
    file = Path(path).expanduser()
    try:
        return GivenFile(place, file, file.read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}", param_hint=_OPTION) from None


def _holder(arguments: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    """The object that a file goes into; those on the way are made."""
    holder = arguments
    for step in place[:-1]:
        inner = holder.setdefault(step, {})
        if not is_object(inner):
            raise typer.BadParameter(f"{'.'.join(place)}: {step!r} is no object in --args", param_hint=_OPTION)
        holder = inner
    return holder
