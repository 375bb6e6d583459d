"""Catalog of an agent: an open Toolbox, or tools around which a Toolbox is opened when needed."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from toolpost.builtin.agent_tools import agent_tools
from toolpost.builtin.loader import BuiltinParts, Builtins
from toolpost.builtin.specs import AGENT_TOOLS, COLLECTIONS
from toolpost.catalog.registry import CatalogChange, ToolRegistry, as_tool
from toolpost.configuration.loading import in_code
from toolpost.contracts.errors import ConfigError
from toolpost.stores.agent_records.folders import TASK_FOLDER
from toolpost.toolbox.box import Toolbox
from toolpost.toolbox.views import OWN as VIEW_TOOLS
from toolpost.toolbox.views import SearchView

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

    from toolpost.configuration.settings import Settings
    from toolpost.contracts.events import RunEvent
    from toolpost.contracts.spec import CustomTool, Tool, ToolDefinition, ToolSpec
    from toolpost.contracts.storage import EventSink

Catalog: TypeAlias = "Toolbox | SearchView | ToolRegistry | Sequence[Tool | CustomTool]"

ARTIFACT_TOOLS = frozenset(COLLECTIONS["artifact_tools"])
_MOST_RUNS = 10_000


class AgentCatalog:
    """The Toolbox of an agent.

    A given Toolbox remains its owner's. Around a list of tools or a ToolRegistry, `open` opens a Toolbox with
    `settings` until `close` or the end of the event loop; it follows the changes of the registry. `is_own` tells the
    two cases apart. A Toolbox opened here has the built-in tools that read artifacts, for large results. `view` is the
    given search view, if any.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        settings: Settings | Mapping[str, Any] | None = None,
        sink: EventSink | None = None,
    ) -> None:
        self.view = catalog if isinstance(catalog, SearchView) else None
        self._shared_box, self._tools, self._followed = _read_catalog(catalog)
        if self._shared_box is not None and settings is not None:
            raise ConfigError("settings are for tools and registries; an open Toolbox has its own")
        self.is_own = self._shared_box is None
        self.settings = in_code(settings).settings if self._shared_box is None else self._shared_box.settings
        self._sink = sink
        self._runs = _RunSink(sink) if sink is not None else None
        if self._shared_box is not None and self._runs is not None:
            self._shared_box.router.emitter.add_sink(self._runs)
        self._box: Toolbox | None = None
        self._holding: AsyncGenerator[Toolbox] | None = None
        self._turn = asyncio.Lock()

    async def open(self) -> Toolbox:
        """Return the Toolbox; open it first if needed."""
        if self._shared_box is not None:
            return self._shared_box
        if self._box is not None:
            return self._box
        async with self._turn:
            if self._box is None:
                self._holding = self._hold()
                self._box = await anext(self._holding)
            return self._box

    async def close(self) -> None:
        """Close the Toolbox that was opened here; the next `open` creates another."""
        async with self._turn:
            if self._holding is not None:
                await self._holding.aclose()

    async def _hold(self) -> AsyncGenerator[Toolbox]:
        """Keep a Toolbox open; the event loop closes leftover generators at its end, and thereby the Toolbox."""
        box = Toolbox(
            tools=self._tools,
            settings=self.settings,
            builtins=_with_artifact_tools(self.settings, {tool.spec.name for tool in self._tools}),
            sinks=[] if self._sink is None else [self._sink],
        )
        try:
            async with box:
                end = None if self._followed is None else follow_registry(self._followed, box.registry)
                try:
                    yield box
                finally:
                    if end is not None:
                        end()
        finally:
            self._box = self._holding = None
            self._turn = asyncio.Lock()  # the next event loop has its own

    def follow_run(self, run_id: str) -> None:
        """Forward the events of a run to the sink; a shared Toolbox has other runs as well."""
        if self._runs is not None:
            self._runs.add(run_id)


class OfferedTools:
    """The tools that a planner offers to its model: `names`, or all of a catalog."""

    def __init__(self, catalog: AgentCatalog, names: Sequence[str] | None) -> None:
        self._catalog = catalog
        self._names = names

    def definitions(self, box: Toolbox, *, has_artifacts: bool) -> Sequence[ToolDefinition]:
        if self._catalog.view is not None:
            return self._catalog.view.definitions()
        registry = box.registry
        names, deferring = self._list(box, has_artifacts=has_artifacts), self._deferred_view(box)
        if deferring is not None:
            offered = [spec.name for spec in registry.specs()] if names is None else names
            names = [name for name in offered if not (registry.has(name) and registry.find(name).spec.is_deferred)]
        listed = registry.to_llm_tools(None if names is None else [name for name in names if registry.has(name)])
        return listed if deferring is None else [*listed, *deferring.definitions()]

    def includes(self, box: Toolbox, name: str, *, has_artifacts: bool) -> bool:
        """Return whether the model may call a tool; the call of an unavailable tool reports the reason."""
        registry, names = box.registry, self._list(box, has_artifacts=has_artifacts)
        if names is None or name in names:
            return True
        if not registry.has(name):
            return self._names is None
        return registry.find(name).spec.name in names or registry.get(name) in map(registry.get, names)

    def view_for(self, box: Toolbox, name: str) -> SearchView | None:
        """Return the view that handles a call: the catalog's, or that of deferred tools for its own tools."""
        if self._catalog.view is not None:
            return self._catalog.view
        return self._deferred_view(box) if name in VIEW_TOOLS else None

    def _deferred_view(self, box: Toolbox) -> SearchView | None:
        """Return the view in which a model finds deferred tools; None if there are none.

        Tools that the planner was given by name are in its prompts. So are all tools if one has a name of the view's.
        """
        if self._names is not None or not any(spec.is_deferred for spec in box.registry.specs()):
            return None
        if any(box.registry.has(name) for name in VIEW_TOOLS):
            return None
        return SearchView(box, only={"where": attrgetter("is_deferred")})

    def _list(self, box: Toolbox, *, has_artifacts: bool) -> Sequence[str] | None:
        """Return the names that the model may call; None is all. Artifact tools wait until there are artifacts."""
        if self._names is not None:
            return self._names
        if not self._catalog.is_own or has_artifacts:
            return None
        builtins = self._catalog.settings.builtins
        hidden = ARTIFACT_TOOLS if builtins == "none" else ARTIFACT_TOOLS.difference(builtins)
        return [spec.name for spec in box.registry.specs() if spec.name not in hidden]


def _read_catalog(catalog: Catalog) -> tuple[Toolbox | None, list[Tool], ToolRegistry | None]:
    """Return the Toolbox, tools or registry of a catalog; raise ConfigError for tools of another owner."""
    if isinstance(catalog, SearchView):
        return _read_catalog(cast("Toolbox", catalog.box))
    if isinstance(catalog, Toolbox):
        catalog.router  # noqa: B018 - raises if the Toolbox is not open
        return catalog, [], None
    if isinstance(catalog, ToolRegistry):
        for spec in catalog.specs():
            if catalog.find(spec.name).source is not None:
                why = f"{spec.name!r} of this registry runs in the sources of its owner"
                raise ConfigError(f"{why}; give catalog=box of an open Toolbox, or load_tools(registry) of a manager")
        return None, [], catalog
    if not hasattr(catalog, "__iter__"):
        forms = "an open Toolbox or a search view of it, a ToolRegistry, or a list of tools"
        raise ConfigError(f"catalog is {forms}, not {type(catalog).__name__}")
    return None, [as_tool(tool) for tool in catalog], None


def _with_artifact_tools(settings: Settings, taken: set[str]) -> list[str] | str:
    """Return the built-in tools of the settings, and those that read artifacts unless their names are taken."""
    builtins = settings.builtins
    if builtins == "all":
        return "all"
    named = [] if isinstance(builtins, str) else list(builtins)
    return [*named, *sorted(ARTIFACT_TOOLS - taken - set(named))] or "none"


def follow_registry(
    shared: ToolRegistry, mine: ToolRegistry, accepts: Callable[[ToolSpec], bool] = lambda _: True
) -> Callable[[], None]:
    """Copy the accepted tools into a registry, and their changes until the returned function is called."""

    def follow(changes: Iterable[CatalogChange]) -> None:
        draft = mine.draft()
        for kind, name in changes:
            if kind == "removed":
                if name in draft.entries:
                    draft.remove(name)
            elif accepts((entry := shared.find(name)).spec):
                draft.place(entry, replace=name in draft.entries)
        mine.commit(draft)

    follow(CatalogChange("added", spec.name) for spec in shared.specs())
    return shared.subscribe(follow)


def agent_registry(
    box: Toolbox, builtins: Sequence[str] = (), accepts: Callable[[ToolSpec], bool] = lambda _: False
) -> tuple[ToolRegistry, Callable[[], None]]:
    """Create a registry for an agent of an open Toolbox; return it and a function that ends its updates.

    The registry contains the accepted tools of the Toolbox, and built-in tools by name, including those that act inside
    an agent. A built-in tool of the Toolbox is used with the operator's overrides.
    """
    names, registry = set(builtins).difference(AGENT_TOOLS), ToolRegistry()
    end = follow_registry(box.registry, registry, lambda spec: spec.name in names or accepts(spec))
    parts = BuiltinParts(
        store=lambda: box.store,
        env=box.settings.tools.env,
        task_folder=partial(box.router.context_defaults.folder, TASK_FOLDER),
        keeps_programs=False,
    )
    missing = [name for name in dict.fromkeys(builtins) if name in names and not registry.has(name)]
    inside = [tool for tool in agent_tools() if tool.spec.name in builtins]
    for tool in [*Builtins(parts).tools(missing), *inside]:
        registry.register(tool, override=box.settings.overrides.get(tool.spec.name))
    return registry, end


def has_effects(registry: ToolRegistry, name: str) -> bool:
    """Return whether a call must not be repeated; a tool that is not known yet may have effects."""
    return not registry.has(name) or registry.find(name).spec.has_effects


class _RunSink:
    """Forwards the events of added runs."""

    def __init__(self, sink: EventSink) -> None:
        self._emit = sink.emit
        self._runs: OrderedDict[str, None] = OrderedDict()

    def add(self, run_id: str) -> None:
        """Forward the events of a run; of very many runs, the oldest are evicted."""
        self._runs[run_id] = None
        self._runs.move_to_end(run_id)
        if len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)

    def emit(self, event: RunEvent) -> None:
        if event.call.run_id in self._runs:
            self._emit(event)
