"""The tools of a Toolbox without a source: built-in tools, tools given in code, and tools of plug-ins."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from toolpost.builtin.loader import BuiltinParts, Builtins
from toolpost.builtin.specs import COLLECTIONS, COMMANDS, read_specs
from toolpost.catalog.registry import ToolRegistry
from toolpost.configuration.defaults import DATA_FOLDER, FILE_BUILTINS
from toolpost.configuration.lint import lint_settings
from toolpost.configuration.literal_secrets import literal_secrets
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.nearest_names import did_you_mean
from toolpost.sources.registry import load_plugins

# Listing these tools needs neither network nor store nor router.
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolpost.builtin.history import TaskFolder
    from toolpost.configuration.loading import LoadedSettings
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.spec import Tool
    from toolpost.contracts.storage import Store
    from toolpost.sources.registry import Plugins
    from toolpost.toolbox.source_index import SourceState
    from toolpost.wire.network import NetworkPolicy


class LocalCatalog(NamedTuple):
    """The catalog of a Toolbox without enabled sources, for listing only: its tools cannot be called."""

    registry: ToolRegistry
    problems: Sequence[str]
    data_dir: Path | None
    source_names: Sequence[str] = ()
    report: Sequence[SourceState] = ()


def list_default_tools() -> LocalCatalog:
    """Fill a catalog with the tools of a folder without a configuration.

    The models of settings are loaded only if plug-ins have tools: these are linted.
    """
    plugins = load_plugins()
    if plugins.tools:
        from toolpost.configuration.loading import load_settings  # noqa: PLC0415 - as said above

        return _list_tools(load_settings(None), plugins)
    registry = ToolRegistry()
    for tool in Builtins(BuiltinParts(store=_memory_store)).tools(FILE_BUILTINS):
        registry.register(tool)
    registry.define_collections(COLLECTIONS)
    return LocalCatalog(registry, plugins.problems, Path(DATA_FOLDER).absolute())


def list_local_tools(loaded: LoadedSettings) -> LocalCatalog:
    """Fill a catalog with the tools of the settings, except those of sources, as opening a Toolbox does."""
    return _list_tools(loaded, load_plugins())


def _list_tools(loaded: LoadedSettings, plugins: Plugins) -> LocalCatalog:
    settings, registry = loaded.settings, ToolRegistry()
    builtins = Builtins(builtin_parts(settings, store=_memory_store, network=partial(network_policy, settings)))
    problems = register_local_tools(registry, settings, builtins.tools(chosen_builtins(settings)), plugins)
    registry.define_collections({**COLLECTIONS, **settings.collections})

    def redact(text: str) -> str:
        from toolpost.policy.redaction import Redactor  # noqa: PLC0415 - most settings have nothing to report

        return Redactor({*loaded.secrets, *literal_secrets(settings)}).text(text)

    findings = lint_settings(settings, registry, (), redact)
    source_names = [source.name for source in settings.all_sources()]
    return LocalCatalog(registry, [*problems, *(one.text for one in findings)], settings.data_dir, source_names)


def _memory_store() -> Store:
    from toolpost.stores.memory.store import MemoryStore  # noqa: PLC0415 - as said above

    return MemoryStore()


def register_local_tools(
    registry: ToolRegistry, settings: Settings, tools: Sequence[Tool], plugins: Plugins
) -> list[str]:
    """Register tools and those of plug-ins; return a problem for each skipped plug-in and tool."""
    for tool in tools:
        registry.register(tool, override=settings.overrides.get(tool.spec.name))
    problems = list(plugins.problems)
    for tool in plugins.tools:
        try:
            registry.register(tool, override=settings.overrides.get(tool.spec.name))
        except ToolError as error:
            problems.append(f"plug-in tool {tool.spec.name!r} is skipped: {error}")
    return problems


def network_policy(settings: Settings) -> NetworkPolicy:
    """Return the network policy of the settings."""
    from toolpost.wire.network import NetworkPolicy  # noqa: PLC0415 - as said above

    network = settings.network
    return NetworkPolicy(
        allow_hosts=frozenset(network.allow_hosts), allow_private=network.allow_private, proxy=network.proxy
    )


def builtin_parts(
    settings: Settings,
    *,
    store: Callable[[], Store],
    network: Callable[[], NetworkPolicy],
    task_folder: TaskFolder = lambda _: None,
) -> BuiltinParts:
    """Return the dependencies of the built-in tools."""
    tools = settings.tools
    literals = settings.network.allow_ip_literals
    return BuiltinParts(
        store=store,
        network=lambda: replace(network(), ip_literals=literals),
        search=tools.web_search.providers(),
        scrape=tools.web_fetch.chain,
        retrieve=tools.retrieval.chain,
        max_results=tools.web_search.max_results,
        env=tools.env,
        task_folder=task_folder,
    )


class WebProviders:
    """The providers of web_search and web_fetch, which can be replaced while calls run."""

    def __init__(self, builtins: Builtins, parts: BuiltinParts, registry: ToolRegistry) -> None:
        self._builtins = builtins
        self._parts = parts
        self._registry = registry

    async def apply(self, settings: Settings) -> None:
        """Use the providers of other settings from the next call on; if they are invalid, ConfigError and no change."""
        tools = settings.tools
        parts = self._parts._replace(
            search=tools.web_search.providers(),
            scrape=tools.web_fetch.chain,
            max_results=tools.web_search.max_results,
        )
        for name, tool in (await self._builtins.exchange_providers(parts)).items():
            if self._registry.has(name) and self._registry.find(name).original.target == tool.spec.target:
                self._registry.register(tool, override=settings.overrides.get(name), replace=True)


def chosen_builtins(settings: Settings) -> list[str] | str:
    """Return `all`, `none`, or names; `all` and collections within a list are expanded to names."""
    wanted = settings.builtins
    if isinstance(wanted, str):
        return wanted
    builtin_names = set(read_specs())
    if not settings.tools.retrieval.chain:
        builtin_names.discard("retrieve")
    sets = {**COLLECTIONS, "all": tuple(sorted(builtin_names.difference(COMMANDS)))}
    for name in wanted:
        if name not in sets and name not in builtin_names:
            raise ConfigError(_unknown_builtin(name, builtin_names))
    # A collection may also name tools of an agent, which are not built-in tools.
    named = (member for name in wanted for member in sets.get(name, (name,)) if member in builtin_names)
    return list(dict.fromkeys(named))


def with_builtins(settings: Settings, wanted: Sequence[str] | str | None) -> Settings:
    """Return the settings with the selected built-in tools; None changes nothing."""
    if wanted is None:
        return settings
    chosen: Sequence[str] | str = [wanted] if isinstance(wanted, str) else list(wanted)
    if wanted in ("all", "none"):
        chosen = wanted
    return settings.model_copy(update={"builtins": chosen})


def _unknown_builtin(name: str, known: set[str]) -> str:
    message = f"builtins: there is no built-in tool {name!r}"
    if name == "retrieve":
        return f"{message} until tools.retrieval.chain names a store"
    if name == "none":
        return f"{message}; write builtins: none without a list"
    near = did_you_mean(name, sorted({*known, *COLLECTIONS}))
    there = f"{near} There are" if near else "there are"
    return f"{message}; {there}: {', '.join(sorted(known))}; and the collections {', '.join(sorted(COLLECTIONS))}"
