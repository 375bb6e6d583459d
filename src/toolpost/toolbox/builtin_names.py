"""Which built-in tools settings ask for, by names of tools and collections; an unknown one is told with the nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.builtin.specs import COLLECTIONS, COMMANDS, read_specs
from toolpost.catalog.names import nearest
from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.configuration.settings import Settings


def chosen_builtins(settings: Settings) -> list[str] | str:
    """`all`, `none`, or names; `all` and collections within a list stand for the names of their tools."""
    wanted = settings.builtins
    if isinstance(wanted, str):
        return wanted
    known = set(read_specs())
    if not settings.tools.retrieval.chain:
        known.discard("retrieve")
    sets = {**COLLECTIONS, "all": tuple(sorted(known.difference(COMMANDS)))}
    for name in wanted:
        if name not in sets and name not in known:
            raise ConfigError(_stranger(name, known))
    # A collection may also name tools of an agent, which are not built in.
    named = (member for name in wanted for member in sets.get(name, (name,)) if member in known)
    return list(dict.fromkeys(named))


def with_builtins(settings: Settings, wanted: Sequence[str] | str | None) -> Settings:
    """The settings with other built-in tools; None leaves what they say."""
    if wanted is None:
        return settings
    chosen: Sequence[str] | str = [wanted] if isinstance(wanted, str) else list(wanted)
    if wanted in ("all", "none"):
        chosen = wanted
    return settings.model_copy(update={"builtins": chosen})


def _stranger(name: str, known: set[str]) -> str:
    said = f"builtins: there is no built-in tool {name!r}"
    if name == "retrieve":
        return f"{said} until tools.retrieval.chain says where it looks"
    if name == "none":
        return f"{said}; write builtins: none without a list"
    near = nearest(name, sorted({*known, *COLLECTIONS}))
    there = "there are" if near is None else f"did you mean {near!r}? There are"
    return f"{said}; {there}: {', '.join(sorted(known))}; and the collections {', '.join(sorted(COLLECTIONS))}"
