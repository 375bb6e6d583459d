"""The registry: every tool under its canonical name."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from msgspec import Struct

from toolpost.catalog.entry import Entry
from toolpost.catalog.function import FunctionTool
from toolpost.catalog.names import NamingPolicy, ToolNameMap, canonical_name, check_canonical
from toolpost.catalog.overrides import apply_override
from toolpost.catalog.specs import has_plain_schemas
from toolpost.contracts.errors import ToolCollisionError, ToolNotFoundError
from toolpost.contracts.nearest_names import did_you_mean, nearest
from toolpost.contracts.spec import CustomTool, Tool, ToolCategory, ToolDefinition, ToolSpec
from toolpost.schema.shared_definitions import SharedDefinitions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from toolpost.catalog.search import CatalogSearch
    from toolpost.contracts.config import ExternalToolConfig, ToolOverride
    from toolpost.contracts.sources import SourceTraits, ToolSource


class CatalogChange(NamedTuple):
    """A tool was added, removed or replaced."""

    kind: Literal["added", "removed", "changed"]
    tool_name: str


class CallStats(Struct, frozen=True):
    """Calls, failures and durations (ms) of one tool; `buckets` counts durations by `DURATION_BOUNDS_MS`.

    `schema_violations` counts results that violated the output schema and were returned anyway.
    """

    count: int
    failures: int
    avg_duration: float
    schema_violations: int = 0
    buckets: tuple[int, ...] = ()


class ToolStats(Struct, frozen=True, kw_only=True):
    """The registry in numbers."""

    total: int
    by_category: dict[ToolCategory, int]
    call_stats: dict[str, CallStats]


class CatalogContents:
    """The tools of a catalog by canonical and by model name, and the records of hidden tools.

    The contents of a registry can be copied, changed in a thread, and replaced by the copy with `ToolRegistry.commit`.
    `changes` are those since the copy. If a tool has the same record but other code, `is_rewired` is set instead:
    listings do not change, but calls do.
    """

    __slots__ = (
        "_definitions",
        "changes",
        "entries",
        "hidden",
        "is_rewired",
        "is_sorted",
        "last_rank",
        "names",
        "version",
    )

    def __init__(self, of: CatalogContents | None = None, *, naming: NamingPolicy = "double_underscore") -> None:
        self.version: int = 0 if of is None else of.version  # first: a change during the copy makes it outdated
        self.entries: dict[str, Entry] = {} if of is None else of.entries.copy()
        self.hidden: dict[str, ToolSpec] = {} if of is None else of.hidden.copy()
        self.names: ToolNameMap = ToolNameMap(naming) if of is None else of.names.copy()
        self.changes: list[CatalogChange] = []
        self.is_rewired = False
        self.is_sorted: bool = of is None or of.is_sorted
        self.last_rank: int = 0 if of is None else of.last_rank
        self._definitions: tuple[ToolDefinition, ...] | None = None

    def place(self, entry: Entry, *, replace: bool = False) -> None:
        """Add an entry created by `new_entry`; ToolCollisionError if its name is taken.

        With `replace` the entry replaces the one of the same name and continues its call counts.
        """
        name = entry.spec.name
        old = self.entries.get(name)
        if old is None:
            self.names.add(name)
            self.is_sorted = self.is_sorted and entry.rank >= self.last_rank
            self.last_rank = max(entry.rank, self.last_rank)
        elif replace:
            entry.counts = old.counts
        else:
            holder = old.spec.source or "the toolbox itself"
            msg = f"a tool named {name!r} is already registered (from {holder}); rename one of them"
            raise ToolCollisionError(msg, tool_name=name)
        self.entries[name] = entry
        self._definitions = None
        if old is not None and old.spec == entry.spec:
            self.is_rewired = True
        else:
            self.changes.append(CatalogChange("changed" if old else "added", name))

    def remove(self, canonical: str) -> None:
        """Remove a tool by its canonical name."""
        del self.entries[canonical]
        self._definitions = None
        self.names.remove(canonical)
        self.changes.append(CatalogChange("removed", canonical))

    def ordered(self) -> Collection[Entry]:
        """Return the entries by rank; entries of one rank in the order of registration."""
        if not self.is_sorted:
            self.entries = dict(sorted(self.entries.items(), key=lambda item: item[1].rank))
            self.is_sorted = True
        return self.entries.values()

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Return the definitions of all tools for models; cached, because an agent lists them in every turn."""
        if self._definitions is None:
            self._definitions = tuple(map(self.define, self.ordered()))
        return self._definitions

    def define(self, entry: Entry) -> ToolDefinition:
        """Return the definition of a tool for models."""
        return ToolDefinition(self.names.to_model(entry.spec.name), entry.spec.description, entry.shown_schema)


class ToolRegistry:
    """Tools by canonical or model name; taken names are rejected."""

    def __init__(self, *, naming: NamingPolicy = "double_underscore") -> None:
        self._contents = CatalogContents(naming=naming)
        self._collections: dict[str, tuple[str, ...]] = {}
        self._listeners: list[Callable[[Sequence[CatalogChange]], None]] = []
        self._search: CatalogSearch | None = None

    @property
    def hidden(self) -> Mapping[str, ToolSpec]:
        """The records of tools that an operator hides."""
        return self._contents.hidden

    def register(
        self,
        tool: Tool | CustomTool,
        *,
        source: ToolSource | None = None,
        config: ExternalToolConfig | None = None,
        override: ToolOverride | None = None,
        replace: bool = False,
        rank: int = 0,
    ) -> None:
        """Add a tool, or with `replace` replace the tool of the same name in one step.

        The tool is listed after tools of a lower or the same `rank`. Raise ToolCollisionError if the name is taken and
        ToolSchemaError if a schema is invalid (both are ValueErrors). With a `source`, that source runs the calls
        within the limits of `config`; the caller closes the source.
        """
        entry = new_entry(tool, source=source, config=config, override=override, rank=rank)
        if override is not None and override.hide:
            self._contents.hidden[entry.original.name] = entry.original
        else:
            self._contents.place(entry, replace=replace)
        self._publish()

    def draft(self) -> CatalogContents:
        """Copy the contents, to be changed and passed to `commit`."""
        return CatalogContents(self._contents)

    def commit(self, draft: CatalogContents) -> CatalogContents | None:
        """Replace the contents by a changed copy in one step, and return the previous ones.

        If the contents have changed since they were copied, change nothing and return None.
        """
        before = self._contents
        if draft.version != before.version:
            return None
        self._contents = draft
        self._publish()
        return before

    def _publish(self) -> None:
        """Invalidate earlier copies, and notify the listeners of the changes."""
        contents = self._contents
        contents.version += 1
        changes, contents.changes = contents.changes, []
        rewired, contents.is_rewired = contents.is_rewired, False
        if changes or rewired:
            for listener in list(self._listeners):
                listener(changes)

    def register_many(self, tools: Iterable[Tool | CustomTool]) -> None:
        """Add several tools."""
        checks = SchemaChecks()
        for tool in tools:
            self._contents.place(new_entry(tool, checks=checks))
            self._publish()

    def unregister(self, name: str) -> None:
        """Remove a tool; calls in flight finish."""
        self._contents.remove(self.find(name).spec.name)
        self._publish()

    def find(self, name: str) -> Entry:
        """Return the entry of a tool by canonical or model name; ToolNotFoundError suggests the nearest name."""
        contents = self._contents
        entry = contents.entries.get(name)
        if entry is not None:
            return entry
        canonical = contents.names.to_canonical(name)
        if canonical is not None:
            return contents.entries[canonical]
        raise ToolNotFoundError(name, suggestion=nearest(name, contents.entries))

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name, or None."""
        try:
            return self.find(name).tool
        except ToolNotFoundError:
            return None

    def has(self, name: str) -> bool:
        """Return whether a tool of this name can be called."""
        return name in self._contents.entries or self._contents.names.to_canonical(name) is not None

    def list(self) -> list[Tool]:
        """Return all tools by rank; `specs` returns their records."""
        return [entry.tool for entry in self._contents.ordered()]

    def specs(self, collection: str | None = None) -> Sequence[ToolSpec]:
        """Return the records with overrides applied: all, or the members of a collection."""
        members = self._members(collection)
        all_specs = [entry.spec for entry in self._contents.ordered()]
        if members is None:
            return all_specs
        return [spec for spec in all_specs if any(belongs(spec, member) for member in members)]

    def _members(self, collection: str | None) -> Sequence[str] | None:
        if collection is None or collection in self._collections:
            return None if collection is None else self._collections[collection]
        names = ", ".join(sorted(self._collections)) or "none are defined"
        hint = f"; {near}" if (near := did_you_mean(collection, self._collections)) else ""
        raise KeyError(f"no collection {collection!r}; there are: {names}{hint}")

    def resolve(self, words: Iterable[str]) -> Sequence[ToolSpec]:
        """Return the records of the tools of these names, collections, or patterns as in collections.

        ToolNotFoundError for a word that matches no tool.
        """
        refuse_text(words=words)
        specs, chosen = self.specs(), set[str]()
        for word in words:
            members = self._collections.get(word, (word,))
            names = {spec.name for spec in specs if any(belongs(spec, member) for member in members)}
            chosen |= names or {self.find(word).spec.name}
        return [spec for spec in specs if spec.name in chosen]

    def select(
        self,
        *,
        collection: str | None = None,
        sources: Collection[str] | None = None,
        tags: Collection[str] | None = None,
        patterns: Collection[str] | None = None,
        where: Callable[[ToolSpec], bool] | None = None,
    ) -> Callable[[ToolSpec], bool]:
        """Return a function that returns whether a tool matches all given conditions.

        `patterns` are those of collections; KeyError for an unknown collection.
        """
        refuse_text(sources=sources, tags=tags, patterns=patterns)
        members = self._members(collection)

        def is_selected(spec: ToolSpec) -> bool:
            return (
                (members is None or any(belongs(spec, member) for member in members))
                and (sources is None or spec.source in sources)
                and (tags is None or not set(tags).isdisjoint(spec.tags))
                and (patterns is None or any(belongs(spec, member) for member in patterns))
                and (where is None or where(spec))
            )

        return is_selected

    async def search(
        self,
        query: str,
        *,
        limit: int = 10,
        offset: int = 0,
        collection: str | None = None,
        sources: Collection[str] | None = None,
        tags: Collection[str] | None = None,
        patterns: Collection[str] | None = None,
        where: Callable[[ToolSpec], bool] | None = None,
    ) -> Sequence[ToolSpec]:
        """Return the tools that match a query best, among those that the other arguments select as in `select`.

        Return at most `limit` tools after the first `offset`. The search is by words, and with the extra `search` also
        by meaning. A query without words matches nothing; a very long query is cut. `where` may be called in a thread.
        """
        selection = (collection, sources, tags, patterns, where)
        accepts = None
        if any(each is not None for each in selection):
            accepts = self.select(collection=collection, sources=sources, tags=tags, patterns=patterns, where=where)
        begin = max(0, offset)
        end = begin + max(0, limit)
        hits = await self._searched().find(query, end, accepts)
        named = self._contents.entries.get(query.strip())
        if named is not None and (accepts is None or accepts(named.spec)):
            hits = [named.spec, *(spec for spec in hits if spec is not named.spec)]
        return hits[begin:end]

    async def correct(self, query: str) -> str | None:
        """Return the query with misspelled words replaced by those of the catalog; None if there are none."""
        return await self._searched().correct(query)

    def _searched(self) -> CatalogSearch:
        if self._search is None:
            from toolpost.catalog.search import CatalogSearch  # noqa: PLC0415 - few programs search

            self._search = CatalogSearch(self.specs)
            self.subscribe(self._search.note_change)
        return self._search

    def list_by_category(self, category: ToolCategory) -> Sequence[Tool]:
        """Return the tools of one category."""
        return [entry.tool for entry in self._contents.ordered() if entry.spec.category is category]

    def to_llm_tools(self, names: Iterable[str] | None = None) -> Sequence[ToolDefinition]:
        """Return tool definitions for a model's function-calling interface: all, or those of these names."""
        if names is None:
            return self._contents.definitions()
        refuse_text(names=names)
        return [self._contents.define(self.find(name)) for name in names]

    def model_name(self, name: str) -> str:
        """Return the name that models use for a tool of this canonical name."""
        return self._contents.names.to_model(name)

    def define_collection(self, name: str, members: Sequence[str]) -> None:
        """Name a set of tools by patterns (names with `*`, or `tag:x`) that are matched at every listing."""
        refuse_text(members=members)
        self._collections[name] = tuple(members)

    @property
    def collections(self) -> Mapping[str, Sequence[str]]:
        """The patterns of each collection, by name."""
        return self._collections

    def define_collections(self, collections: Mapping[str, Sequence[str]]) -> None:
        """Replace all collections in one step."""
        self._collections = {name: tuple(members) for name, members in collections.items()}

    def get_stats(self) -> ToolStats:
        """Count tools by category, and calls by tool."""
        by_category = dict.fromkeys(ToolCategory, 0)
        entries = self._contents.entries
        for entry in entries.values():
            by_category[entry.spec.category] += 1
        stats = {
            name: CallStats(c.count, c.failures, c.total_ms / c.count, c.schema_violations, tuple(c.buckets))
            for name, entry in entries.items()
            if (c := entry.counts).count
        }
        return ToolStats(total=len(entries), by_category=by_category, call_stats=stats)

    def update_call_stats(self, name: str, duration: float, success: bool) -> None:  # noqa: FBT001 - the record's own order
        """Count one call of a tool; unknown names are not counted."""
        if self.has(name):
            self.find(name).counts.record(duration, success)

    def subscribe(self, listener: Callable[[Sequence[CatalogChange]], None]) -> Callable[[], None]:
        """Call `listener` with the changes of the tools; return the function that unsubscribes it.

        All changes of one listing of a source come in one call. If only the code behind the tools changes, the listener
        is called without changes.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)


def as_tool(given: Tool | CustomTool) -> Tool:
    """Return a tool unchanged, and a custom tool with a `spec`; TypeError explains how to convert a plain function."""
    if hasattr(given, "spec"):
        return cast("Tool", given)
    from toolpost.catalog.object_tool import ObjectTool, is_custom_tool, missing_members  # noqa: PLC0415 - seldom used

    if is_custom_tool(given):
        return ObjectTool(given)
    if hasattr(given, "execute") and (missing := missing_members(given)):
        raise TypeError(f"{given!r} is not a tool: it lacks {', '.join(missing)}; give it these, or a `spec`")
    raise TypeError(f"{given!r} is not a tool; put @tool on it, or give it a `spec` and `execute`")


class SchemaChecks:
    """Shared definitions of several tools that were already checked."""

    def __init__(self) -> None:
        from toolpost.schema.schema_checks import CheckedDefinitions  # noqa: PLC0415 - see `_check_contract`

        self.shared = SharedDefinitions()
        self.inputs = CheckedDefinitions(self.shared)
        self.outputs = CheckedDefinitions(self.shared)


def new_entry(
    given: Tool | CustomTool,
    *,
    source: ToolSource | None = None,
    config: ExternalToolConfig | None = None,
    traits: SourceTraits | None = None,
    override: ToolOverride | None = None,
    rank: int = 0,
    checks: SchemaChecks | None = None,
) -> Entry:
    """Check a tool's name and schemas, and build its entry for `CatalogContents.place`; raise their errors.

    Uses no shared state: a thread may build many entries.
    """
    tool = as_tool(given)
    spec = tool.spec
    if not (isinstance(tool, FunctionTool) and tool.is_checked):
        _check_contract(spec, checks)
    overlay = None
    if override is not None:
        name = canonical_name(tool.spec.source, override.name) if override.name else tool.spec.name
        overlay = apply_override(tool.spec, override, name=name)
    shared = None if checks is None else checks.shared
    entry = Entry(tool, source=source, config=config, traits=traits, overlay=overlay, rank=rank, shared=shared)
    check_canonical(entry.spec.name)
    return entry


def _check_contract(spec: ToolSpec, checks: SchemaChecks | None) -> None:
    if checks is not None and has_plain_schemas(spec, checks.shared):
        return
    # A catalog of built-in tools can be listed without the validator, which takes as long to load as the listing.
    from toolpost.schema.schema_checks import check_schema  # noqa: PLC0415

    inputs, outputs = (None, None) if checks is None else (checks.inputs, checks.outputs)
    check_schema(spec.input_schema, tool_name=spec.name, checked=inputs)
    if spec.output_schema is not None:
        check_schema(spec.output_schema, tool_name=spec.name, role="output", checked=outputs)


def refuse_text(**words: Iterable[str] | None) -> None:
    """Raise TypeError for a string in place of a list: each of its characters would be an item."""
    for name, value in words.items():
        if isinstance(value, str):
            raise TypeError(f"{name} is a list, not a string; write {name}=[{value!r}]")


def belongs(spec: ToolSpec, member: str) -> bool:
    """Return whether a tool matches a member of a collection: a name with `*`, or `tag:x`."""
    if member.startswith("tag:"):
        return member.removeprefix("tag:") in spec.tags
    return fnmatchcase(spec.name, member)
