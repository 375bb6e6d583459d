"""Read the arguments of a call from JSON, NAME=VALUE pairs and local files."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from toolpost.contracts.principal import Principal
from toolpost.schema.json_values import as_object, is_object, refuse_constant

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox


_FILE_PARAM = "--file"

_PARAM = "NAME=VALUE"


def read_json(text: str, *, option: str) -> Any:
    """Read JSON from the text itself, from `@FILE`, or from stdin for `-`; raise a BadParameter for anything else."""
    try:
        return json.loads(_read_text(text), parse_constant=refuse_constant)
    except OSError as error:
        raise typer.BadParameter(f"{error.filename}: {error.strerror}", param_hint=option) from None
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors.
        raise typer.BadParameter(f"this is not JSON: {error}", param_hint=option) from None


def read_text(text: str, *, option: str) -> str:
    """Read a text: itself, from `@FILE`, or from stdin for `-`; raise a BadParameter where it cannot be read."""
    try:
        return _read_text(text)
    except OSError as error:
        raise typer.BadParameter(f"{error.filename}: {error.strerror}", param_hint=option) from None
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{text}: it is not UTF-8 text: {error.reason}", param_hint=option) from None


def read_json_or_text(text: str) -> Any:
    """Parse a text as JSON; return the text itself if it is not JSON."""
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return text


def _read_text(text: str) -> str:
    if text == "-":
        return sys.stdin.read()
    if text.startswith("@"):
        return Path(text[1:]).read_text(encoding="utf-8")
    return text


def parse_duration_option(text: str) -> float:
    """Parse a duration such as 30s or 2m; raise a BadParameter for anything else."""
    from toolpost.configuration.settings import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


class Pair(NamedTuple):
    """Path of an argument, where a dot leads into an object, and its value as text."""

    place: tuple[str, ...]
    value: str


def add_pairs(written: Sequence[str], arguments: Any) -> list[Pair]:
    """Parse NAME=VALUE pairs and add their values to the arguments as text; raise a BadParameter for a wrong pair."""
    pairs = [_parse_pair(text) for text in written]
    if pairs and not is_object(arguments):
        raise typer.BadParameter("the arguments must be an object", param_hint=_PARAM)
    for place, value in pairs:
        holder = _parent_object(arguments, place, param_hint=_PARAM)
        if place[-1] in holder:
            raise typer.BadParameter(f"{'.'.join(place)} is repeated", param_hint=_PARAM)
        holder[place[-1]] = value
    return pairs


def convert_values(pairs: Sequence[Pair], arguments: Any, schema: Mapping[str, Any]) -> None:
    """Replace added values by their JSON where the schema does not want a string."""
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
    return as_object(as_object(schema.get("properties")).get(name))


class FileArgument(NamedTuple):
    """Content of a local file, and the path of the argument that takes it."""

    place: tuple[str, ...]
    path: Path
    data: bytes


def read_file_args(text: Sequence[str], arguments: Any) -> list[FileArgument]:
    """Read the files of `ARGUMENT=PATH` options; raise a BadParameter for a wrong option or an unreadable file."""
    files = [_parse_file(pair) for pair in text]
    if files and not is_object(arguments):
        raise typer.BadParameter("the arguments must be an object to contain files", param_hint="--args")
    for file in files:
        _parent_object(arguments, file.place, param_hint=_FILE_PARAM)
    return files


async def store_files(files: Sequence[FileArgument], arguments: Any, box: Toolbox, *, user: str, run_id: str) -> None:
    """Store the files as artifacts of a run, and set their references as arguments of its call."""
    import mimetypes

    from toolpost.contracts.storage import ArtifactRef
    from toolpost.http.content import OCTETS

    owner = Principal.parse(user)
    for place, path, data in files:
        ref = ArtifactRef(
            id="",
            sha256="",
            size=0,
            media_type=mimetypes.guess_type(path.name)[0] or OCTETS,
            name=path.name,
            tenant=owner.tenant,
            user=owner.user,
            run_id=run_id,
            call_id="",
            tool_name="",
            created_at=time.time(),
        )
        artifact = await box.store.artifacts.put(data, ref)
        _parent_object(arguments, place, param_hint=_FILE_PARAM)[place[-1]] = {
            "artifact_id": artifact.id,
            "filename": path.name,
        }


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


def _parent_object(arguments: dict[str, Any], place: tuple[str, ...], *, param_hint: str) -> dict[str, Any]:
    """Return the object that holds the last step of a path; create the missing objects on the way."""
    parent = arguments
    for step in place[:-1]:
        inner = parent.setdefault(step, {})
        if not is_object(inner):
            where = " in --args" if param_hint == _FILE_PARAM else ""
            raise typer.BadParameter(f"{'.'.join(place)}: {step!r} is not an object{where}", param_hint=param_hint)
        parent = inner
    return parent
