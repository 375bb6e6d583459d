"""Which built-in tools settings ask for, by their names; one that there is not is told with the nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.builtin.assembly import COMMANDS
from toolpost.builtin.records import read_records
from toolpost.catalog.names import nearest
from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from toolpost.toolbox.settings import Settings


def chosen_builtins(settings: Settings) -> list[str] | str:
    """`all`, `none`, or names; `all` within a list stands for the names that `all` alone stands for."""
    wanted = settings.builtins
    if isinstance(wanted, str):
        return wanted
    known = set(read_records())
    if not settings.tools.retrieval.chain:
        known.discard("retrieve")
    for name in wanted:
        if name != "all" and name not in known:
            raise ConfigError(_stranger(name, known))
    named = [name for name in wanted if name != "all"]
    return [*sorted(known - {*COMMANDS, *named}), *named] if "all" in wanted else named


def _stranger(name: str, known: set[str]) -> str:
    said = f"builtins: there is no built-in tool {name!r}"
    if name == "retrieve":
        return f"{said} until tools.retrieval.chain says where it looks"
    if name == "none":
        return f"{said}; write builtins: none without a list"
    near = nearest(name, sorted(known))
    there = "there are" if near is None else f"did you mean {near!r}? There are"
    return f"{said}; {there}: {', '.join(sorted(known))}"
