"""The built-in tools by groups: what makes each, imported when one of its tools is first needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolpost.builtin.specs import COLLECTIONS, COMMANDS
from toolpost.wire.network import NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from toolpost.builtin.environment import TaskEnvironment
    from toolpost.builtin.providers.config import ProviderSettings
    from toolpost.builtin.tasks import OpenLog
    from toolpost.catalog.function import FunctionTool
    from toolpost.contracts.storage import Store
    from toolpost.processes.commands import CommandRunner

    Made = Sequence[FunctionTool]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinParts:
    """What built-in tools work with; without a chain to retrieve there is no such tool."""

    store: Store
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    search: Sequence[ProviderSettings] = ()
    scrape: Sequence[ProviderSettings] = ()
    retrieve: Sequence[ProviderSettings] = ()
    max_results: int = 10
    env: Sequence[str] = ()
    open_log: OpenLog | None = None


class Shared:
    """What the groups share: the commands, what tasks have set, and what must be closed."""

    def __init__(self, parts: BuiltinParts) -> None:
        self.parts = parts
        self.closing: list[Callable[[], Awaitable[None]]] = []
        self._commands: CommandRunner | None = None
        self._environment: TaskEnvironment | None = None

    @property
    def commands(self) -> CommandRunner:
        """Whoever runs commands for all tools; nothing is started before the first."""
        if self._commands is None:
            from toolpost.processes.commands import CommandRunner  # noqa: PLC0415 - when it is first needed

            self._commands = CommandRunner()
            self.closing.append(self._commands.close)
        return self._commands

    @property
    def environment(self) -> TaskEnvironment:
        """What tasks have set."""
        if self._environment is None:
            from toolpost.builtin.environment import ALLOWED, TaskEnvironment  # noqa: PLC0415 - when it is first needed

            self._environment = TaskEnvironment((*ALLOWED, *self.parts.env))
        return self._environment


def _system(shared: Shared) -> Made:
    from toolpost.builtin.system import system_tools  # noqa: PLC0415 - when it is first needed

    return system_tools(shared.environment)


def _files(shared: Shared) -> Made:
    from toolpost.builtin.files import file_tools  # noqa: PLC0415 - when it is first needed

    return file_tools(commands=shared.commands)


def _http(shared: Shared) -> Made:
    from toolpost.builtin.network import http_tools  # noqa: PLC0415 - when it is first needed
    from toolpost.builtin.web_access import Web  # noqa: PLC0415 - the same

    web = Web(shared.parts.network)
    shared.closing.append(web.close)
    return http_tools(web)


def _search(shared: Shared) -> Made:
    from toolpost.builtin.providers.factory import build_search_chain  # noqa: PLC0415 - when it is first needed
    from toolpost.builtin.web_searching import search_tools  # noqa: PLC0415 - the same

    chain = build_search_chain(shared.parts.search or _usual("duckduckgo"), shared.parts.network)
    shared.closing.append(chain.close)
    return search_tools(chain, max_results=shared.parts.max_results)


def _pages(shared: Shared) -> Made:
    from toolpost.builtin.providers.factory import build_scrape_chain, share_timeout  # noqa: PLC0415 - when it is first needed
    from toolpost.builtin.web_pages import page_tools  # noqa: PLC0415 - the same

    links = share_timeout(shared.parts.scrape or _usual("direct"))
    chain = build_scrape_chain(links, shared.parts.network)
    shared.closing.append(chain.close)
    return page_tools(chain, timeout_s=sum(link.timeout_s for link in links))


def _retrieve(shared: Shared) -> Made:
    from toolpost.builtin.providers.factory import build_retrieve_chain  # noqa: PLC0415 - when it is first needed
    from toolpost.builtin.web_searching import retrieve_tools  # noqa: PLC0415 - the same

    chain = build_retrieve_chain(shared.parts.retrieve, shared.parts.network)
    shared.closing.append(chain.close)
    return retrieve_tools(chain)


def _data(_: Shared) -> Made:
    from toolpost.builtin.data import data_tools  # noqa: PLC0415 - when it is first needed

    return data_tools()


def _memory(_: Shared) -> Made:
    from toolpost.builtin.memory import memory_tools  # noqa: PLC0415 - when it is first needed

    return memory_tools()


def _tasks(shared: Shared) -> Made:
    from toolpost.builtin.tasks import task_tools  # noqa: PLC0415 - when it is first needed

    return task_tools(shared.parts.store.events, open_log=shared.parts.open_log)


def _sessions(_: Shared) -> Made:
    from toolpost.builtin.sessions import session_tools  # noqa: PLC0415 - when it is first needed

    return session_tools()


def _artifacts(shared: Shared) -> Made:
    from toolpost.builtin.artifacts import artifact_tools  # noqa: PLC0415 - when it is first needed

    return artifact_tools(shared.parts.store.artifacts)


def _run(shared: Shared) -> Made:
    from toolpost.builtin.command_runs import BackgroundCommands  # noqa: PLC0415 - when it is first needed
    from toolpost.builtin.commands import command_tools  # noqa: PLC0415 - the same

    commands, background = shared.commands, BackgroundCommands()
    shared.closing.append(background.close)
    return command_tools(commands, background, shared.environment)


def _usual(name: str) -> list[ProviderSettings]:
    from toolpost.builtin.providers.config import ProviderSettings  # noqa: PLC0415 - when it is first needed

    return [ProviderSettings.model_validate({"provider": name})]


GROUPS: tuple[tuple[Sequence[str], Callable[[Shared], Made]], ...] = (
    (COLLECTIONS["system_tools"], _system),
    (COLLECTIONS["file_tools"], _files),
    (("http_get", "http_post", "http_request"), _http),
    (("web_search",), _search),
    (("web_fetch",), _pages),
    (COLLECTIONS["data_tools"], _data),
    (COLLECTIONS["memory_tools"], _memory),
    (COLLECTIONS["task_tools"], _tasks),
    (COLLECTIONS["session_tools"], _sessions),
    (COLLECTIONS["artifact_tools"], _artifacts),
    (COMMANDS, _run),
    (("retrieve",), _retrieve),
)
