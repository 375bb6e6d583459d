"""The registry: every tool under its canonical name."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple

from toolpost.catalog.entry import Entry
from toolpost.catalog.names import NamingPolicy, ToolNameMap, canonical_name, check_canonical, nearest
from toolpost.catalog.overrides import overlay
from toolpost.contracts.errors import ToolCollisionError, ToolNotFoundError
from toolpost.contracts.spec import ToolCategory, ToolDefinition
from toolpost.schema.bounds import check_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from toolpost.contracts.config import ExternalToolConfig, ToolOverride
    from toolpost.contracts.spec import ToolSpec
    from toolpost.contracts.tools import Tool, ToolSource


class CatalogChange(NamedTuple):
    """A tool came, went or was exchanged."""

    kind: Literal["added", "removed", "changed"]
    tool_name: str


@dataclass(frozen=True, slots=True)
class CallStats:
    """How often one tool was called, how often that failed, and how long it took on average (ms)."""

    count: int
    failures: int
    avg_duration: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStats:
    """The registry in numbers."""

    total: int
    by_category: dict[ToolCategory, int]
    call_stats: dict[str, CallStats]


class ToolRegistry:
    """Tools by name; canonical and model names both find them, and a taken name is refused."""

    def __init__(self, *, naming: NamingPolicy = "double_underscore") -> None:
        self._entries: dict[str, Entry] = {}
        self._names = ToolNameMap(naming)
        self._hidden: dict[str, Tool] = {}
        self._collections: dict[str, tuple[str, ...]] = {}
        self._listeners: list[Callable[[CatalogChange], None]] = []

    def register(
        self,
        tool: Tool,
        *,
        source: ToolSource | None = None,
        config: ExternalToolConfig | None = None,
        override: ToolOverride | None = None,
    ) -> None:
        """Add a tool; ToolCollisionError when its name is taken, ToolSchemaError when its schema is bad."""
        spec = tool.spec
        check_schema(spec.input_schema, tool_name=spec.name)
        if override is not None and override.hide:
            self._hidden[spec.name] = tool
            return
        name = canonical_name(spec.source, override.name) if override and override.name else spec.name
        laid = overlay(spec, override, name=name) if override else None
        self._add(name, Entry(tool, source=source, config=config, overlay=laid))
        self._tell("added", name)

    def register_many(self, tools: Iterable[Tool]) -> None:
        """Add several tools."""
        for tool in tools:
            self.register(tool)

    def unregister(self, name: str) -> None:
        """Remove a tool while others go on; calls under way finish."""
        entry = self.find(name)
        del self._entries[entry.spec.name]
        self._names.remove(entry.spec.name)
        self._tell("removed", entry.spec.name)

    def replace(self, tool: Tool, *, source: ToolSource | None = None) -> None:
        """Exchange a tool for another of the same name without a gap."""
        check_schema(tool.spec.input_schema, tool_name=tool.spec.name)
        old = self.find(tool.spec.name)
        self._entries[old.spec.name] = Entry(tool, source=source, config=old.config)
        self._tell("changed", old.spec.name)

    def _add(self, name: str, entry: Entry) -> None:
        check_canonical(name)
        if name in self._entries:
            taken = self._entries[name].spec.source or "the toolbox itself"
            msg = f"a tool named {name!r} is already registered (from {taken}); rename one of them"
            raise ToolCollisionError(msg, tool_name=name)
        self._names.add(name)
        self._entries[name] = entry

    def find(self, name: str) -> Entry:
        """The entry of a tool, by canonical or model name; ToolNotFoundError names the nearest."""
        entry = self._entries.get(name)
        if entry is not None:
            return entry
        canonical = self._names.to_canonical(name)
        if canonical is not None:
            return self._entries[canonical]
        raise ToolNotFoundError(name, suggestion=nearest(name, self._entries))

    def get(self, name: str) -> Tool | None:
        """The tool of this name, or None."""
        try:
            return self.find(name).tool
        except ToolNotFoundError:
            return None

    def has(self, name: str) -> bool:
        """Whether a tool of this name can be called."""
        return name in self._entries or self._names.to_canonical(name) is not None

    def original(self, name: str) -> ToolSpec:
        """The record of a tool as its source gave it, also of a renamed or hidden one."""
        if name in self._hidden:
            return self._hidden[name].spec
        for entry in self._entries.values():
            if entry.original.name == name:
                return entry.original
        return self.find(name).original

    def list(self) -> list[Tool]:
        """All tools, in the order they came."""
        return [entry.tool for entry in self._entries.values()]

    def specs(self) -> Sequence[ToolSpec]:
        """All records as they are in force, overrides included."""
        return [entry.spec for entry in self._entries.values()]

    def list_by_category(self, category: ToolCategory) -> Sequence[Tool]:
        """The tools of one category."""
        return [entry.tool for entry in self._entries.values() if entry.spec.category is category]

    def to_llm_tools(self, names: Iterable[str] | None = None) -> Sequence[ToolDefinition]:
        """The tools as a model's function-calling interface wants them."""
        entries = self._entries.values() if names is None else [self.find(name) for name in names]
        to_model = self._names.to_model
        return [
            ToolDefinition(to_model(entry.spec.name), entry.spec.description, entry.spec.input_schema)
            for entry in entries
        ]

    def define_collection(self, name: str, members: Sequence[str]) -> None:
        """Name a set of tools by patterns: names with `*`, or `tag:x`; it follows the catalog as that changes."""
        self._collections[name] = tuple(members)

    def collection(self, name: str) -> Sequence[ToolSpec]:
        """The tools that belong to a collection now."""
        if name not in self._collections:
            known = ", ".join(sorted(self._collections)) or "none are defined"
            msg = f"no collection {name!r}; there are: {known}"
            raise KeyError(msg)
        members = self._collections[name]
        return [spec for spec in self.specs() if any(_belongs(spec, member) for member in members)]

    def get_stats(self) -> ToolStats:
        """The registry in numbers."""
        by_category = dict.fromkeys(ToolCategory, 0)
        for entry in self._entries.values():
            by_category[entry.spec.category] += 1
        called = {name: entry for name, entry in self._entries.items() if entry.count}
        stats = {name: CallStats(e.count, e.failures, e.total_ms / e.count) for name, e in called.items()}
        return ToolStats(total=len(self._entries), by_category=by_category, call_stats=stats)

    def update_call_stats(self, name: str, duration: float, success: bool) -> None:  # noqa: FBT001 - the record's own order
        """Count one call of a tool; unknown names are not counted."""
        if self.has(name):
            self.find(name).record(duration, success=success)

    def subscribe(self, listener: Callable[[CatalogChange], None]) -> None:
        """Be told whenever a tool comes, goes or changes."""
        self._listeners.append(listener)

    def _tell(self, kind: Literal["added", "removed", "changed"], name: str) -> None:
        for listener in self._listeners:
            listener(CatalogChange(kind, name))


def _belongs(spec: ToolSpec, member: str) -> bool:
    if member.startswith("tag:"):
        return member.removeprefix("tag:") in spec.tags
    return fnmatchcase(spec.name, member)
