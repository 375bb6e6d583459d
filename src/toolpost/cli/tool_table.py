"""Tools as a table for people, or as one JSON document."""

from __future__ import annotations

from textwrap import shorten

from toolpost.cli.output import Output
from toolpost.contracts.spec import ToolSpec

_LONGEST = 200


def show_tools(specs: list[ToolSpec], output: Output) -> None:
    """Show them all, and what to do next."""
    if output.as_json:
        output.document([spec.to_dict() for spec in specs])
        return
    if not specs:
        output.note("There are no such tools.")
        return
    rows = [(spec.name, _effects(spec), spec.source or "-", _first_line(spec.description)) for spec in specs]
    output.table(["Tool", "Effects", "Source", "Description"], rows)
    helpers = sum(spec.is_helper for spec in specs)
    more = f", and {helpers} for resources and prompts" if helpers else ""
    output.note(f"{counted(len(specs) - helpers)}{more}. `toolpost tools show NAME{output.again}` tells all about one.")


def counted(tools: int) -> str:
    """So many tools, in words."""
    return f"{tools} tool{'' if tools == 1 else 's'}"


def _effects(spec: ToolSpec) -> str:
    mark = {True: ", destructive", None: ", unknown", False: ""}[spec.safety.destructive]
    return f"{spec.side_effects}{mark}"


def _first_line(text: str) -> str:
    return shorten(text.strip().partition("\n")[0], _LONGEST, placeholder=" …")
