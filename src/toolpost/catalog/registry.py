"""The registry: every tool under its canonical name."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple

from toolpost.catalog.entry import Entry, apply_override
from toolpost.catalog.names import NamingPolicy, ToolNameMap, canonical_name, check_canonical
from toolpost.contracts.errors import ToolCollisionError, ToolNotFoundError, nearest
from toolpost.contracts.spec import ToolCategory, ToolDefinition
from toolpost.schema.schema_checks import CheckedDefinitions, check_schema
from toolpost.schema.subschemas import SharedDefinitions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from toolpost.catalog.lock import Hold
    from toolpost.contracts.config import ExternalToolConfig, ToolOverride
    from toolpost.contracts.sources import ToolSource
    from toolpost.contracts.spec import Tool, ToolSpec


class CatalogChange(NamedTuple):
    """A tool was added, removed or replaced."""

    kind: Literal["added", "removed", "changed"]
    tool_name: str


@dataclass(frozen=True, slots=True)
class CallStats:
    """Calls, failures and average duration (ms) of one tool.

    `misfits` counts results that violated the output schema and were returned all the same.
    """

    count: int
    failures: int
    avg_duration: float
    misfits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStats:
    """The registry in numbers."""

    total: int
    by_category: dict[ToolCategory, int]
    call_stats: dict[str, CallStats]


class ToolRegistry:
    """Tools by canonical or model name; a name that is taken is refused.

    `hidden` holds the records of tools that an operator hides.
    """

    def __init__(self, *, naming: NamingPolicy = "double_underscore") -> None:
        self.hidden: dict[str, ToolSpec] = {}
        self._entries: dict[str, Entry] = {}
        self._is_sorted = True
        self._last_rank = 0
        self._names = ToolNameMap(naming)
        self._collections: dict[str, tuple[str, ...]] = {}
        self._listeners: list[Callable[[CatalogChange], None]] = []

    def register(
        self,
        tool: Tool,
        *,
        source: ToolSource | None = None,
        config: ExternalToolConfig | None = None,
        override: ToolOverride | None = None,
        replace: bool = False,
        rank: int = 0,
        hold: Hold | None = None,
    ) -> None:
        """Add a tool, or with `replace` exchange the tool of the same name without a gap.

        The tool is listed behind tools of a lower or the same `rank`.

        ToolCollisionError when the name is taken, ToolSchemaError when a schema is bad (both ValueErrors). With a
        `source` that source runs the calls, within the limits of `config`; the caller closes the source. With a `hold`
        calls wait until a person has agreed to the tool's definition.
        """
        entry = new_entry(tool, source=source, config=config, override=override, rank=rank)
        if override is not None and override.hide:
            self.hidden[tool.spec.name] = tool.spec
            return
        if hold is not None:
            entry.apply_hold(hold)
        self.place(entry, replace=replace)

    def place(self, entry: Entry, *, replace: bool = False) -> None:
        """Add an entry that `new_entry` made, as `register` does."""
        name = entry.spec.name
        old = self._entries.get(name)
        if old is None:
            self._names.add(name)
        elif replace:
            entry.take_over_counts(old)
        else:
            raise _name_taken(old)
        self._entries[name] = entry
        self._note_rank(entry.rank)
        _notify(self._listeners, "changed" if old else "added", name)

    def _note_rank(self, rank: int) -> None:
        """Mark the entries as unsorted when a lower rank comes after a higher one."""
        self._is_sorted = self._is_sorted and rank >= self._last_rank
        self._last_rank = max(rank, self._last_rank)

    def _ordered(self) -> Collection[Entry]:
        if not self._is_sorted:
            by_rank = sorted(self._entries.items(), key=lambda item: item[1].rank)
            self._entries = dict(by_rank)
            self._is_sorted = True
        return self._entries.values()

    def register_many(self, tools: Iterable[Tool]) -> None:
        """Add several tools."""
        for tool in tools:
            self.register(tool)

    def unregister(self, name: str) -> None:
        """Remove a tool; calls in flight finish."""
        canonical = self.find(name).spec.name
        del self._entries[canonical]
        self._names.remove(canonical)
        _notify(self._listeners, "removed", canonical)

    def find(self, name: str) -> Entry:
        """Return the entry of a tool by canonical or model name; ToolNotFoundError suggests the nearest name."""
        entry = self._entries.get(name)
        if entry is not None:
            return entry
        canonical = self._names.to_canonical(name)
        if canonical is not None:
            return self._entries[canonical]
        raise ToolNotFoundError(name, suggestion=nearest(name, self._entries))

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name, or None."""
        try:
            return self.find(name).tool
        except ToolNotFoundError:
            return None

    def has(self, name: str) -> bool:
        """Return whether a tool of this name can be called."""
        return name in self._entries or self._names.to_canonical(name) is not None

    def list(self) -> list[Tool]:
        """Return all tools by rank; `specs` returns their records."""
        return [entry.tool for entry in self._ordered()]

    def specs(self, collection: str | None = None) -> Sequence[ToolSpec]:
        """Return the records with overrides applied: all, or the members of a collection."""
        all_specs = [entry.spec for entry in self._ordered()]
        if collection is None:
            return all_specs
        if collection not in self._collections:
            known = ", ".join(sorted(self._collections)) or "none are defined"
            msg = f"no collection {collection!r}; there are: {known}"
            raise KeyError(msg)
        members = self._collections[collection]
        return [spec for spec in all_specs if any(_belongs(spec, member) for member in members)]

    def list_by_category(self, category: ToolCategory) -> Sequence[Tool]:
        """Return the tools of one category."""
        return [entry.tool for entry in self._ordered() if entry.spec.category is category]

    def to_llm_tools(self, names: Iterable[str] | None = None) -> Sequence[ToolDefinition]:
        """Return tool definitions for a model's function-calling interface: all, or those of these names."""
        entries = self._ordered() if names is None else [self.find(name) for name in names]
        to_model = self._names.to_model
        return [
            ToolDefinition(to_model(entry.spec.name), entry.spec.description, entry.shown_schema) for entry in entries
        ]

    def define_collection(self, name: str, members: Sequence[str]) -> None:
        """Name a set of tools by patterns (names with `*`, or `tag:x`) that are matched whenever the set is listed."""
        self._collections[name] = tuple(members)

    def get_stats(self) -> ToolStats:
        """Count tools by category, and calls by tool."""
        by_category = dict.fromkeys(ToolCategory, 0)
        for entry in self._entries.values():
            by_category[entry.spec.category] += 1
        called = {name: entry for name, entry in self._entries.items() if entry.count}
        stats = {name: CallStats(e.count, e.failures, e.total_ms / e.count, e.misfits) for name, e in called.items()}
        return ToolStats(total=len(self._entries), by_category=by_category, call_stats=stats)

    def update_call_stats(self, name: str, duration: float, success: bool) -> None:  # noqa: FBT001 - the record's own order
        """Count one call of a tool; unknown names are not counted."""
        if self.has(name):
            self.find(name).record(duration, success=success)

    def subscribe(self, listener: Callable[[CatalogChange], None]) -> None:
        """Call `listener` whenever a tool is added, removed or changed."""
        self._listeners.append(listener)


def as_tool(given: Tool) -> Tool:
    """Return the argument if it is a tool; TypeError says what to do with a plain function."""
    if not hasattr(given, "spec"):
        raise TypeError(f"{given!r} is no tool; put @tool on it, or give it a `spec` and `execute`")
    return given


class SchemaChecks:
    """Definitions that several tools share and that were checked already, so that each is checked once."""

    def __init__(self) -> None:
        self.shared = SharedDefinitions()
        self.inputs = CheckedDefinitions(self.shared)
        self.outputs = CheckedDefinitions(self.shared)


def new_entry(
    tool: Tool,
    *,
    source: ToolSource | None = None,
    config: ExternalToolConfig | None = None,
    override: ToolOverride | None = None,
    rank: int = 0,
    checks: SchemaChecks | None = None,
) -> Entry:
    """Check a tool's name and schemas and build its entry for `ToolRegistry.place`; raise what is wrong with them.

    Touches no shared state, so that a thread may build many entries.
    """
    _check_contract(as_tool(tool).spec, checks)
    overlay = None
    if override is not None:
        name = canonical_name(tool.spec.source, override.name) if override.name else tool.spec.name
        overlay = apply_override(tool.spec, override, name=name)
    shared = None if checks is None else checks.shared
    entry = Entry(tool, source=source, config=config, overlay=overlay, rank=rank, shared=shared)
    check_canonical(entry.spec.name)
    return entry


def _check_contract(spec: ToolSpec, checks: SchemaChecks | None) -> None:
    inputs, outputs = (None, None) if checks is None else (checks.inputs, checks.outputs)
    check_schema(spec.input_schema, tool_name=spec.name, checked=inputs)
    if spec.output_schema is not None:
        check_schema(spec.output_schema, tool_name=spec.name, role="output", checked=outputs)


def _name_taken(holder: Entry) -> ToolCollisionError:
    name, source = holder.spec.name, holder.spec.source or "the toolbox itself"
    msg = f"a tool named {name!r} is already registered (from {source}); rename one of them"
    return ToolCollisionError(msg, tool_name=name)


def _notify(
    listeners: Iterable[Callable[[CatalogChange], None]], kind: Literal["added", "removed", "changed"], name: str
) -> None:
    for listener in listeners:
        listener(CatalogChange(kind, name))


def _belongs(spec: ToolSpec, member: str) -> bool:
    if member.startswith("tag:"):
        return member.removeprefix("tag:") in spec.tags
    return fnmatchcase(spec.name, member)
