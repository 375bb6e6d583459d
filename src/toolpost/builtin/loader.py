"""Loader of a Toolbox's built-in tools: listed from their specs, imported by groups at the first call."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from toolpost.builtin.specs import COLLECTIONS, COMMANDS, builtin_target, read_specs
from toolpost.catalog.function import FunctionTool
from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from toolpost.builtin.history import OpenLog, TaskFolder
    from toolpost.builtin.providers.config import ProviderSettings
    from toolpost.builtin.providers.protocols import Chain
    from toolpost.builtin.system import TaskEnvironment
    from toolpost.contracts.calls import AuthorizedCall, ToolOutput
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import ToolResult
    from toolpost.contracts.spec import Preview, Tool, ToolSpec
    from toolpost.contracts.storage import Store
    from toolpost.processes.commands import CommandRunner
    from toolpost.wire.network import NetworkPolicy

_DEFAULT_MAX_RESULTS = 10


def _public_addresses() -> NetworkPolicy:
    from toolpost.wire.network import NetworkPolicy  # noqa: PLC0415 - when it is first needed

    return NetworkPolicy(ip_literals=False)


class BuiltinParts(NamedTuple):
    """Services and settings of the built-in tools; the tool `retrieve` needs a `retrieve` chain.

    `store` and `network` are called when the first tool that needs them is loaded; listing tools needs neither. With
    `keeps_programs`, searches share a process that runs until `Builtins.close`.
    """

    store: Callable[[], Store]
    network: Callable[[], NetworkPolicy] = _public_addresses
    search: Sequence[ProviderSettings] = ()
    scrape: Sequence[ProviderSettings] = ()
    retrieve: Sequence[ProviderSettings] = ()
    max_results: int = _DEFAULT_MAX_RESULTS
    env: Sequence[str] = ()
    open_log: OpenLog | None = None
    task_folder: TaskFolder = lambda _: None
    keeps_programs: bool = True


class Builtins:
    """The built-in tools, over one store and one network policy."""

    def __init__(self, parts: BuiltinParts) -> None:
        self._parts = parts
        self._shared = _SharedServices(parts)
        self._loaded: dict[str, FunctionTool] = {}

    def tools(self, selection: Sequence[str] | str) -> list[FunctionTool]:
        """Return the tools selected by `all`, `none` or a list of names; raise a ConfigError for an unknown name."""
        absent = () if self._parts.retrieve else ("retrieve",)
        specs = {name: spec for name, spec in read_specs().items() if name not in absent}
        names = _names(selection, known=set(specs))
        configured = self._list_configured()
        return [
            self.load(name) if name in configured else DeferredTool(spec, partial(self.load, name))
            for name, spec in specs.items()
            if name in names
        ]

    def load_all(self) -> list[FunctionTool]:
        """Import and return every tool, enabled or not."""
        return [self.load(name) for names, _ in _GROUPS for name in names]

    async def exchange_providers(self, parts: BuiltinParts) -> dict[str, FunctionTool]:
        """Rebuild the web tools with changed providers, and return them by name.

        Raise ConfigError and change nothing if one cannot be built. Running calls finish with the previous providers.
        """
        before = self._parts
        differ = {
            "web_search": (parts.search, parts.max_results) != (before.search, before.max_results),
            "web_fetch": parts.scrape != before.scrape,
        }
        other = Builtins(before._replace(search=parts.search, scrape=parts.scrape, max_results=parts.max_results))
        built = {name: other.load(name) for name, is_other in differ.items() if is_other}
        self._parts = other._parts
        self._loaded |= built
        self._shared.closing += other._shared.closing
        retired = [self._shared.chains[name] for name in built if name in self._shared.chains]
        self._shared.chains |= other._shared.chains
        for chain in retired:
            self._shared.closing.remove(chain.close)
            await chain.retire()
        return built

    async def close(self) -> None:
        """Close connections, commands and files of all tools; safe to call twice."""
        while self._shared.closing:
            await self._shared.closing.pop()()

    def _list_configured(self) -> set[str]:
        """Return the tools with settings; they are loaded immediately, because invalid settings must fail at start."""
        parts = self._parts
        facts = {
            "web_search": bool(parts.search) or parts.max_results != _DEFAULT_MAX_RESULTS,
            "web_fetch": bool(parts.scrape),
            "retrieve": bool(parts.retrieve),
        }
        return {name for name, configured in facts.items() if configured}

    def load(self, name: str) -> FunctionTool:
        """Return a tool; import its group if needed."""
        if name not in self._loaded:
            build = next(build for names, build in _GROUPS if name in names)
            for tool in build(self._parts, self._shared):
                own = tool.spec.name
                self._loaded[own] = tool.renamed(replace(tool.spec, target=builtin_target(own)))
        return self._loaded[name]


class DeferredTool(FunctionTool):
    """Placeholder in the catalog for a tool that `load` imports at the first call."""

    __slots__ = ("_load",)
    is_checked = True  # at release: `standard_check` checks all of `specs.json`

    def __init__(self, spec: ToolSpec, load: Callable[[], FunctionTool]) -> None:
        self.spec = spec
        self._load = load

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._load()(*args, **kwargs)

    @property
    def takes_context(self) -> bool:
        """Always False: built-in tools ask no questions while they run."""
        return False

    @property
    def may_report(self) -> bool:
        """Always True: only the loaded tool shows whether it reports."""
        return True

    @property
    def previewer(self) -> Preview | None:
        return self._load().previewer

    def renamed(self, spec: ToolSpec) -> FunctionTool:
        return DeferredTool(spec, self._load)

    def start(self, call: AuthorizedCall) -> Awaitable[Any]:
        return self._load().start(call)

    def output(self, value: Any) -> ToolOutput:
        return self._load().output(value)

    async def execute(self, params: dict[str, Any], context: ToolContext | Mapping[str, Any]) -> ToolResult:
        return await self._load().execute(params, context)


def is_builtin(tool: Tool) -> bool:
    """Return whether a tool was imported from `toolpost.builtin`; a Toolbox replaces it."""
    return isinstance(tool, DeferredTool)


def file_tools(*, ripgrep: str = "rg", commands: CommandRunner | None = None) -> list[FunctionTool]:
    """Build the tools that work on files; `ripgrep` is the name or path of ripgrep.

    Searches start faster with `commands`, which the caller closes.
    """
    from toolpost.builtin.file_listing import listing_tools  # noqa: PLC0415 - when it is first needed
    from toolpost.builtin.file_moves import moving_tools  # noqa: PLC0415 - the same
    from toolpost.builtin.file_reading import reading_tools  # noqa: PLC0415 - the same
    from toolpost.builtin.file_search import grep_tools  # noqa: PLC0415 - the same
    from toolpost.builtin.file_writing import writing_tools  # noqa: PLC0415 - the same

    tools = [*reading_tools(), *listing_tools(), *writing_tools(), *moving_tools()]
    return [*tools, *grep_tools(ripgrep=ripgrep, commands=commands)]


class _SharedServices:
    """Services that several groups of tools share, created at first use, and their close functions."""

    def __init__(self, parts: BuiltinParts) -> None:
        self.closing: list[Callable[[], Awaitable[None]]] = []
        self.chains: dict[str, Chain[Any]] = {}  # by tool
        self._env = parts.env
        self._commands: CommandRunner | None = None
        self._environment: TaskEnvironment | None = None

    @property
    def commands(self) -> CommandRunner:
        """The command runner of all tools; no process is started before the first command."""
        if self._commands is None:
            from toolpost.processes.commands import CommandRunner  # noqa: PLC0415 - when it is first needed

            self._commands = CommandRunner()
            self.closing.append(self._commands.close)
        return self._commands

    @property
    def environment(self) -> TaskEnvironment:
        if self._environment is None:
            from toolpost.builtin.system import ALLOWED, TaskEnvironment  # noqa: PLC0415 - when it is first needed

            self._environment = TaskEnvironment((*ALLOWED, *self._env))
        return self._environment


def _system(_: BuiltinParts, shared: _SharedServices) -> Sequence[FunctionTool]:
    from toolpost.builtin.system import system_tools  # noqa: PLC0415 - when it is first needed

    return system_tools(shared.environment)


def _files(parts: BuiltinParts, shared: _SharedServices) -> Sequence[FunctionTool]:
    return file_tools(commands=shared.commands if parts.keeps_programs else None)


def _http(parts: BuiltinParts, shared: _SharedServices) -> Sequence[FunctionTool]:
    from toolpost.builtin.http_tools import http_tools  # noqa: PLC0415 - when it is first needed
    from toolpost.builtin.web_client import WebClient  # noqa: PLC0415 - the same

    web = WebClient(parts.network())
    shared.closing.append(web.close)
    return http_tools(web)


def _search(parts: BuiltinParts, shared: _SharedServices) -> Sequence[FunctionTool]:
    from toolpost.builtin.providers.factory import build_search_chain  # noqa: PLC0415 - when it is first needed
    from toolpost.builtin.web_tools import web_search_tools  # noqa: PLC0415 - the same

    chain = build_search_chain(parts.search or _default_provider("duckduckgo"), parts.network())
    shared.chains["web_search"] = chain
    shared.closing.append(chain.close)
    return web_search_tools(chain, max_results=parts.max_results)


def _pages(parts: BuiltinParts, shared: _SharedServices) -> Sequence[FunctionTool]:
    from toolpost.builtin.providers.factory import build_scrape_chain, share_timeout  # noqa: PLC0415 - the same
    from toolpost.builtin.web_tools import web_fetch_tools  # noqa: PLC0415 - the same

    links = share_timeout(parts.scrape or _default_provider("direct"))
    chain = build_scrape_chain(links, parts.network())
    shared.chains["web_fetch"] = chain
    shared.closing.append(chain.close)
    return web_fetch_tools(chain, timeout_s=sum(link.timeout_s for link in links))


def _retrieve(parts: BuiltinParts, shared: _SharedServices) -> Sequence[FunctionTool]:
    from toolpost.builtin.providers.factory import build_retrieve_chain  # noqa: PLC0415 - when it is first needed
    from toolpost.builtin.web_tools import retrieve_tools  # noqa: PLC0415 - the same

    chain = build_retrieve_chain(parts.retrieve, parts.network())
    shared.closing.append(chain.close)
    return retrieve_tools(chain)


def _data(_: BuiltinParts, __: _SharedServices) -> Sequence[FunctionTool]:
    from toolpost.builtin.data import data_tools  # noqa: PLC0415 - when it is first needed

    return data_tools()


def _memory(_: BuiltinParts, __: _SharedServices) -> Sequence[FunctionTool]:
    from toolpost.builtin.memory import memory_tools  # noqa: PLC0415 - when it is first needed

    return memory_tools()


def _history(parts: BuiltinParts, _: _SharedServices) -> Sequence[FunctionTool]:
    from toolpost.builtin.artifacts import artifact_tools  # noqa: PLC0415 - when it is first needed
    from toolpost.builtin.history import task_tools  # noqa: PLC0415 - the same
    from toolpost.builtin.session_archives import session_tools  # noqa: PLC0415 - the same

    store = parts.store()
    tasks = task_tools(store.events, folder=parts.task_folder, open_log=parts.open_log)
    return [*tasks, *session_tools(), *artifact_tools(store.artifacts)]


def _commands(_: BuiltinParts, shared: _SharedServices) -> Sequence[FunctionTool]:
    from toolpost.builtin.background_commands import BackgroundCommands  # noqa: PLC0415 - when it is first needed
    from toolpost.builtin.commands import command_tools  # noqa: PLC0415 - the same

    commands, background = shared.commands, BackgroundCommands()
    shared.closing.append(background.close)
    return command_tools(commands, background, shared.environment)


def _default_provider(name: str) -> list[ProviderSettings]:
    from toolpost.builtin.providers.config import ProviderSettings  # noqa: PLC0415 - when it is first needed

    return [ProviderSettings.model_validate({"provider": name})]


def _names(selection: Sequence[str] | str, *, known: set[str]) -> set[str]:
    if isinstance(selection, str):
        return known - set(COMMANDS) if selection == "all" else set()
    if unknown := sorted(set(selection) - known):
        hint = ", ".join(sorted(known))
        raise ConfigError(f"builtins: unknown built-in tool {unknown[0]!r}; the tools are: {hint}")
    return {*selection, *(COMMANDS if "run_command" in selection else ())}


_GROUPS: tuple[tuple[Sequence[str], Callable[[BuiltinParts, _SharedServices], Sequence[FunctionTool]]], ...] = (
    (COLLECTIONS["system_tools"], _system),
    (COLLECTIONS["file_tools"], _files),
    (("http_get", "http_post", "http_request"), _http),
    (("web_search",), _search),
    (("web_fetch",), _pages),
    (COLLECTIONS["data_tools"], _data),
    (COLLECTIONS["memory_tools"], _memory),
    ((*COLLECTIONS["task_tools"], *COLLECTIONS["session_tools"], *COLLECTIONS["artifact_tools"]), _history),
    (COMMANDS, _commands),
    (("retrieve",), _retrieve),
)
