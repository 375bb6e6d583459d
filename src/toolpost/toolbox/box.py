"""The Toolbox: the front door that joins configuration, catalog, policy, stores and runtime."""

from __future__ import annotations

import getpass
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from toolpost.auth.authorizer import Authorizer
from toolpost.auth.seal import FileSealer
from toolpost.builtin.artifacts import artifact_tools
from toolpost.catalog.registry import ToolRegistry
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.policy.redaction import Redactor
from toolpost.policy.rules import Policy, Rule
from toolpost.runtime.attempt import ContextDefaults
from toolpost.runtime.caretaker import Caretaker
from toolpost.runtime.concurrency import map_concurrent
from toolpost.runtime.desk import PendingDesk
from toolpost.runtime.router import ToolRouter
from toolpost.stores.memory import MemoryStore
from toolpost.stores.sqlite import open_sqlite_store
from toolpost.toolbox.loading import LoadedSettings, load_settings
from toolpost.toolbox.plugins import load_plugins
from toolpost.toolbox.settings import Settings
from toolpost.toolbox.sourcing import Sources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.events import RunSummary, StoredEvent
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.questions import Decision, PendingAction
    from toolpost.contracts.storage import EventSink, Store
    from toolpost.contracts.tool import Tool
    from toolpost.toolbox.sourcing import SourceState

KEY_FILE = "key"


class Toolbox:
    """One catalog of tools and one safe way to call them.

    Use it as an async context manager. Without a file the defaults hold: everything
    is kept on SQLite in `.toolpost`, and destructive calls wait for a person.
    """

    def __init__(
        self,
        *,
        tools: Sequence[Tool] = (),
        settings: Settings | None = None,
        on_pending: Callable[[PendingAction], None] | None = None,
        sinks: Sequence[EventSink] = (),
    ) -> None:
        self._given = LoadedSettings(settings=settings or Settings(), path=None)
        self._tools = tuple(tools)
        self._on_pending = on_pending
        self._sinks = tuple(sinks)
        self._exit = AsyncExitStack()
        self._people: dict[str, Principal] = {}
        self.registry = ToolRegistry()
        self.problems: list[str] = []

    @classmethod
    def open(
        cls,
        config: str | Path | None = None,
        *,
        tools: Sequence[Tool] = (),
        on_pending: Callable[[PendingAction], None] | None = None,
        sinks: Sequence[EventSink] = (),
    ) -> Toolbox:
        """A Toolbox by a file; without one, by `toolpost.yaml` in the working folder or the defaults."""
        box = cls(tools=tools, on_pending=on_pending, sinks=sinks)
        box._given = load_settings(None if config is None else Path(config))
        return box

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._given.settings

    @property
    def config_path(self) -> Path | None:
        """The file that the settings came from."""
        return self._given.path

    @property
    def report(self) -> list[SourceState]:
        """How each source fared."""
        return self._sources.states

    async def __aenter__(self) -> Self:
        try:
            await self._wire()
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    async def _wire(self) -> None:
        settings = self.settings
        self.store: Store = _open_store(settings)
        self._exit.push_async_callback(self.store.close)
        plugins = load_plugins()
        self._sources = Sources(self.registry, plugins.source_factories, settings.overrides)
        self._exit.push_async_callback(self._sources.close)
        self.router = self.make_router(*self._sinks)
        self.desk = PendingDesk(self.router, self.registry)
        self._caretaker = Caretaker(self.router, self.desk, retention=settings.retention.to_retention())
        await self._fill([*_builtins(settings, self.store), *plugins.tools, *self._tools])
        self.problems += [*plugins.problems, *self._sources.problems]
        self._exit.push_async_callback(self.router.wait_closed)
        self._exit.push_async_callback(self._caretaker.stop)
        await self._caretaker.start()

    def make_router(self, *sinks: EventSink, auto_emit: bool = True) -> ToolRouter:
        """A router over this Toolbox; one that does not tell of completion itself is for a ToolExecutor."""
        settings = self.settings
        return ToolRouter(
            self.registry,
            store=self.store,
            policy=_policy(settings),
            authorizer=Authorizer(),
            redactor=Redactor(self._given.secrets),
            sinks=sinks,
            on_pending=self._on_pending,
            context_defaults=_context_defaults(settings),
            timeout_s=settings.tools.timeout_s,
            inline_bytes=settings.limits.inline_bytes,
            pending_ttl_s=settings.limits.pending_ttl,
            retry_ratio=settings.limits.retry_budget,
            auto_emit=auto_emit,
        )

    async def _fill(self, tools: Sequence[Tool]) -> None:
        for tool in tools:
            self.registry.register(tool, override=self.settings.overrides.get(tool.spec.name))
        for config in self.settings.all_sources():
            await self._sources.load(config)
        for name, members in self.settings.collections.items():
            self.registry.define_collection(name, members)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        user: str | None = None,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        run_id: str | None = None,
        context: ToolContext | None = None,
    ) -> Outcome:
        """Call a tool by name, for a user written `tenant:user` (the local one when not said)."""
        return await self.router.call(
            name,
            arguments,
            principal=self._person(user),
            run_id=run_id,
            timeout_s=timeout_s,
            idempotency_key=idempotency_key,
            context=context,
        )

    async def call_many(
        self,
        calls: Sequence[tuple[str, Mapping[str, Any]]],
        *,
        user: str | None = None,
        max_parallel: int | None = None,
    ) -> list[Outcome]:
        """Call several tools at once, never more than `limits.absolute_max_parallel`; outcomes come in order."""
        most = self.settings.limits.absolute_max_parallel
        return await map_concurrent(
            calls, lambda one: self.call(one[0], one[1], user=user), max_concurrency=min(max_parallel or most, most)
        )

    async def approve(self, pending_id: str, *, by: str, arguments: Mapping[str, Any] | None = None) -> Outcome:
        """Let a waiting call run, with changed arguments if given, and return its outcome."""
        return await self.desk.approve(pending_id, by=by, arguments=arguments)

    async def deny(self, pending_id: str, *, by: str, reason: str = "") -> Outcome:
        """Refuse a waiting call for good."""
        return await self.desk.deny(pending_id, by=by, reason=reason)

    async def answer(
        self, pending_id: str, value: Any = None, *, by: str, decision: Decision = "answer", reason: str = ""
    ) -> Outcome:
        """Answer a question that a tool asked, or tell what became of an interrupted call."""
        return await self.desk.answer(pending_id, value, by=by, decision=decision, reason=reason)

    async def cancel(self, target_id: str, *, by: str) -> bool:
        """Cancel a call or a whole run, wherever it runs; False when there is nothing of that name."""
        tenant = Principal.parse(by).tenant
        if self.router.inflight.cancel(target_id, tenant=tenant):
            return True
        run = await self.store.events.run(target_id, tenant=tenant)
        if run is None or run.status in ("completed", "failed"):
            return False
        await self.store.cancels.request(target_id, tenant=tenant, by=by)
        await self._caretaker.cancel_waiting(target_id)
        return True

    async def runs(self, *, user: str | None = None, limit: int = 50) -> list[RunSummary]:
        """The newest runs of the user's tenant."""
        return await self.store.events.runs(tenant=self._person(user).tenant, limit=limit)

    async def run(self, run_id: str, *, user: str | None = None) -> RunSummary | None:
        """One run, if it exists for this user."""
        return await self.store.events.run(run_id, tenant=self._person(user).tenant)

    async def events(
        self, *, user: str | None = None, run_id: str | None = None, after: int = 0, limit: int = 1000
    ) -> list[StoredEvent]:
        """What was told of the tenant's runs, oldest first."""
        return await self.store.events.read(tenant=self._person(user).tenant, run_id=run_id, after=after, limit=limit)

    async def prune(self) -> dict[str, int]:
        """Remove what the retention settings no longer keep."""
        return await self._caretaker.prune()

    def _person(self, user: str | None) -> Principal:
        key = user or ""
        person = self._people.get(key)
        if person is None:
            person = Principal.parse(user) if user else Principal(LOCAL_TENANT, getpass.getuser())
            self._people[key] = person
        return person


def _open_store(settings: Settings) -> Store:
    if settings.data_dir is None:
        return MemoryStore()
    sealer = FileSealer(settings.data_dir / KEY_FILE)
    return open_sqlite_store(settings.data_dir, sealer=sealer, queue_limit=settings.limits.event_queue)


def _policy(settings: Settings) -> Policy:
    if isinstance(settings.policy, str):
        return Policy(settings.policy)
    rules = [
        Rule(
            action=rule.action,
            tools=tuple(rule.tools),
            sources=tuple(rule.sources or ()),
            tags=tuple(rule.tags or ()),
            side_effects=tuple(rule.side_effects or ()),
            destructive=rule.destructive,
            reason=rule.reason,
        )
        for rule in settings.policy
    ]
    return Policy("standard", rules)


def _context_defaults(settings: Settings) -> ContextDefaults:
    paths = settings.tools.allowed_paths
    home = settings.data_dir
    return ContextDefaults(
        None if paths is None else tuple(map(str, paths)),
        None if home is None else str(home / "memory"),
        None if home is None else str(home / "sessions"),
    )


def _builtins(settings: Settings, store: Store) -> list[Tool]:
    if settings.builtins == "none":
        return []
    tools: list[Tool] = [*artifact_tools(store.artifacts)]
    if settings.builtins == "all":
        return tools
    return [tool for tool in tools if tool.spec.name in settings.builtins]
