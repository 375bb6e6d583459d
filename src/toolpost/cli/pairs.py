"""Arguments of a call that are written as NAME=VALUE, each on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import typer

from toolpost.cli.options import read_json_or_text
from toolpost.schema.json_values import is_object

_PARAM = "NAME=VALUE"


class Pair(NamedTuple):
    """An argument by its place, where a dot leads into an object, and its value as it was written."""

    place: tuple[str, ...]
    value: str


def given_pairs(written: Sequence[str], arguments: Any) -> list[Pair]:
    """Read pairs and put them among the arguments, as text; anything else is a wrong command line."""
    pairs = [_pair(text) for text in written]
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


def _pair(text: str) -> Pair:
    name, equals, value = text.partition("=")
    place = tuple(name.split("."))
    if not equals or not all(place):
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE; such as title='two words'", param_hint=_PARAM)
    return Pair(place, value)


def _property(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    properties: Any = schema.get("properties")
    found: Any = properties.get(name) if is_object(properties) else None
    return found if is_object(found) else {}
