"""All built-in tools of one Toolbox: listed by their records, made by groups when they are called, closed together."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from toolpost.builtin.deferred import DeferredTool
from toolpost.builtin.groups import GROUPS, BuiltinParts, Shared
from toolpost.builtin.specs import COMMANDS, builtin_target, read_specs
from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.catalog.function import FunctionTool

__all__ = ["BuiltinParts", "Builtins"]

_USUAL_RESULTS = 10


class Builtins:
    """The built-in tools, over one store and one network policy."""

    def __init__(self, parts: BuiltinParts) -> None:
        self._shared = Shared(parts)
        self._made: dict[str, FunctionTool] = {}

    def tools(self, wanted: Sequence[str] | str) -> list[FunctionTool]:
        """Those that are wanted: `all`, `none`, or by their names; a name that there is not is a ConfigError."""
        specs = read_specs()
        if not self._shared.parts.retrieve:
            del specs["retrieve"]
        names = _names(wanted, known=set(specs))
        listed: list[FunctionTool] = [
            DeferredTool(spec, partial(self._load, name)) for name, spec in specs.items() if name in names
        ]
        configured = self._configured()
        return [self._load(tool.spec.name) if tool.spec.name in configured else tool for tool in listed]

    def make_all(self) -> list[FunctionTool]:
        """Every tool itself, whether it was asked for or not."""
        return [self._load(name) for names, _ in GROUPS for name in names]

    async def close(self) -> None:
        """Let go of everything; safe to call twice."""
        while self._shared.closing:
            await self._shared.closing.pop()()

    def _configured(self) -> set[str]:
        """The tools whose configuration is looked at now, so that what is wrong with it shows at the start."""
        parts = self._shared.parts
        facts = {
            "web_search": bool(parts.search) or parts.max_results != _USUAL_RESULTS,
            "web_fetch": bool(parts.scrape),
            "retrieve": bool(parts.retrieve),
        }
        return {name for name, said in facts.items() if said}

    def _load(self, name: str) -> FunctionTool:
        if name not in self._made:
            make = next(make for names, make in GROUPS if name in names)
            self._made |= {tool.spec.name: _with_target(tool) for tool in make(self._shared)}
        return self._made[name]


def _with_target(tool: FunctionTool) -> FunctionTool:
    return tool.renamed(replace(tool.spec, target=builtin_target(tool.spec.name)))


def _names(wanted: Sequence[str] | str, *, known: set[str]) -> set[str]:
    if isinstance(wanted, str):
        return known - set(COMMANDS) if wanted == "all" else set()
    if unknown := sorted(set(wanted) - known):
        hint = ", ".join(sorted(known))
        raise ConfigError(f"builtins: there is no built-in tool {unknown[0]!r}; there are: {hint}")
    return {*wanted, *(COMMANDS if "run_command" in wanted else ())}
