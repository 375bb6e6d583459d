"""Read the arguments of a call from NAME=VALUE pairs and from local files."""

from __future__ import annotations

import mimetypes
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from toolpost.cli.commands import read_json_or_text
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import ArtifactRef
from toolpost.schema.json_values import is_object
from toolpost.web.content import OCTETS

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox


_FILE_PARAM = "--file"

_PARAM = "NAME=VALUE"


class Pair(NamedTuple):
    """An argument by its place, where a dot leads into an object, and its value as it was written."""

    place: tuple[str, ...]
    value: str


def given_pairs(written: Sequence[str], arguments: Any) -> list[Pair]:
    """Read pairs and put them among the arguments, as text; anything else is a wrong command line."""
    pairs = [_parse_pair(text) for text in written]
    if pairs and not is_object(arguments):
        raise typer.BadParameter("only arguments that are an object have room for it", param_hint=_PARAM)
    for place, value in pairs:
        holder = arguments
        for step in place[:-1]:
            holder = holder.setdefault(step, {})
            if not is_object(holder):
                raise typer.BadParameter(f"{'.'.join(place)}: {step!r} is no object", param_hint=_PARAM)
        if place[-1] in holder:
            raise typer.BadParameter(f"{'.'.join(place)} is given twice", param_hint=_PARAM)
        holder[place[-1]] = value
    return pairs


def read_values(pairs: Sequence[Pair], arguments: Any, schema: Mapping[str, Any]) -> None:
    """Make JSON of those values among the arguments that are to be something else than text, and are JSON."""
    for place, value in pairs:
        holder, wanted = arguments, schema
        for step in place[:-1]:
            holder, wanted = holder[step], _property(wanted, step)
        if _property(wanted, place[-1]).get("type") != "string":
            holder[place[-1]] = read_json_or_text(value)


def _parse_pair(text: str) -> Pair:
    name, equals, value = text.partition("=")
    place = tuple(name.split("."))
    if not equals or not all(place):
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE; such as title='two words'", param_hint=_PARAM)
    return Pair(place, value)


def _property(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    properties: Any = schema.get("properties")
    found: Any = properties.get(name) if is_object(properties) else None
    return found if is_object(found) else {}


class FileArgument(NamedTuple):
    """A file, and where among the arguments it goes."""

    place: tuple[str, ...]
    path: Path
    data: bytes


def read_file_args(written: Sequence[str], arguments: Any) -> list[FileArgument]:
    """Read `ARGUMENT=PATH`, where a dot leads into an object; anything else is a wrong command line."""
    files = [_parse_file(pair) for pair in written]
    if files and not is_object(arguments):
        raise typer.BadParameter("only arguments that are an object have room for files", param_hint="--args")
    for file in files:
        _holder(arguments, file.place)
    return files


async def store_files(files: Sequence[FileArgument], arguments: Any, box: Toolbox, *, user: str, run_id: str) -> None:
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


def _parse_file(pair: str) -> FileArgument:
    argument, equals, path = pair.partition("=")
    place = tuple(argument.split("."))
    if not equals or not path or not all(place):
        raise typer.BadParameter("write ARGUMENT=PATH, such as body.file=report.pdf", param_hint=_FILE_PARAM)
    file = Path(path).expanduser()
    try:
        return FileArgument(place, file, file.read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}", param_hint=_FILE_PARAM) from None


def _holder(arguments: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    """The object that a file goes into; those on the way are made."""
    holder = arguments
    for step in place[:-1]:
        inner = holder.setdefault(step, {})
        if not is_object(inner):
            raise typer.BadParameter(f"{'.'.join(place)}: {step!r} is no object in --args", param_hint=_FILE_PARAM)
        holder = inner
    return holder
