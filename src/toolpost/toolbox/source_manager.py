"""Add, connect, replace and remove the sources of one Toolbox; sources do not delay each other."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolError
from toolpost.contracts.events import EventCode
from toolpost.contracts.sources import ContentSource, LiveSource, RecallingSource, ToolSource
from toolpost.toolbox.catalog_exchange import CatalogExchange
from toolpost.toolbox.idle_sources import ApprovedSource, IdleSource
from toolpost.toolbox.source_index import ManagedSource, SourceIndex
from toolpost.toolbox.source_monitor import SourceMonitor
from toolpost.toolbox.source_tools import SourceTools

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Mapping, Sequence

    from toolpost.auth.credentials import Authorizer
    from toolpost.configuration.protected_files import ProtectedFiles
    from toolpost.contracts.config import ExternalToolConfig, ToolOverride
    from toolpost.contracts.questions import Question
    from toolpost.contracts.spec import Tool
    from toolpost.toolbox.source_factory import SourceFactory
    from toolpost.toolbox.source_tools import Catalog

_GRACE_S = 30.0


class FinishCalls(Protocol):
    """Wait until no call runs on a source, for at most `within_s` seconds."""

    def __call__(self, source: ToolSource, *, within_s: float) -> Awaitable[None]: ...


async def _no_calls(source: ToolSource, *, within_s: float) -> None:
    pass


class SourceManager:
    """Connect the sources of one Toolbox, and add, replace and remove sources while it is open.

    Calls in flight finish, and other sources are not affected. `index` contains the sources and their states, `monitor`
    follows them, and `exchange` keeps their tools in the catalog. `finish_calls` waits for the calls of a source that
    is to be closed. `protected` protects the files of sources.
    """

    def __init__(
        self,
        registry: Catalog,
        authorizer: Authorizer,
        factory: SourceFactory,
        *,
        index: SourceIndex | None = None,
        overrides: Mapping[str, ToolOverride] | None = None,
        finish_calls: FinishCalls = _no_calls,
        protected: ProtectedFiles | None = None,
    ) -> None:
        self._redactor, self._emit = factory.redactor, factory.emit
        self.index = index or SourceIndex(self._redactor)
        self.exchange = CatalogExchange(self.index, authorizer, self._redactor, protected)
        self.monitor = SourceMonitor(self.index, self.exchange, self._redactor, self._emit)
        self._registry = registry
        self._authorizer = authorizer
        self._factory = factory
        self._overrides = overrides or {}
        self._finish_calls = finish_calls
        self._protected = protected
        self._closing: set[asyncio.Task[None]] = set()  # replaced sources that wait for their last calls
        self._turns: dict[str, asyncio.Lock] = {}  # one change at a time for each name
        self._last_rank = 0
        self._started = False

    async def load_all(self, configs: Sequence[ExternalToolConfig], *, wait_s: float | None = None) -> None:
        """Connect all sources concurrently; ConfigError if a required one fails.

        Sources that are not required are awaited for at most `wait_s` seconds, and not at all if their listing is
        cached; they enter the catalog later. Tools enter in the order of the configuration. A model therefore sees the
        same list every time, and the same one of two tools with one name wins.
        """
        sources: list[ManagedSource] = []
        for config in configs:
            if config.enabled:
                before = [managed.entered for managed in sources]
                sources.append(self._add(config, before, declared=True))
        for managed in sources:
            self.index.start(managed)
        try:
            await _wait_started(sources, wait_s)
        finally:
            self._started = True
            for managed in sources:
                managed.entered.set()
        for managed in sources:
            if managed.listed:  # it answered in time and only waits for its turn
                await managed.filled.wait()

    async def add(self, config: ExternalToolConfig) -> None:
        """Connect one more source and wait for it; a source that is not `enabled` is skipped.

        A source that does not connect is reported as down, and calls retry it. A `required` one is removed again and
        raises ConfigError. If this is cancelled, the source is removed, too.
        """
        async with self._turn(config.name):
            if not config.enabled:
                return
            managed = self._add(config)
            try:
                await self.index.start(managed)
            except (ConfigError, asyncio.CancelledError):
                await self._remove_and_close(managed, grace_s=0.0)
                raise

    async def add_idle(
        self,
        config: ExternalToolConfig,
        tools: Sequence[Tool],
        *,
        from_data: bool = False,
        question: Question | None = None,
    ) -> None:
        """Add the source of a table's rows without starting, importing or connecting anything.

        The catalog has `tools`, as the rows describe them, until the first call to one of them connects the source and
        lists its own. With `from_data` the address comes from a row: variables in it are not substituted, and the
        network policy applies to it. With a `question`, an approver has to answer it before the source is connected.
        """
        async with self._turn(config.name):
            managed = self._add(config)
            managed.from_rows, managed.from_data = True, from_data
            if question is None:
                managed.is_placeholder = True
                self.index.connecting.add(config.name)  # calls have to wait for the listing of the server
                source: ToolSource = IdleSource(config, tools)
            else:
                managed.source = source = ApprovedSource(config, tools, question, partial(self._build, managed))
            await self.exchange.place_idle(managed, source, tools, answered=question is not None)

    async def replace(self, config: ExternalToolConfig, *, grace_s: float = _GRACE_S) -> None:
        """Exchange the source of this name for one with other settings, in one step once that one has connected.

        Calls in flight finish on the old source, which is closed after the last of them or after `grace_s` seconds.
        If the new source does not connect, raise ToolError and keep the old one. A source that is not `enabled` is only
        removed. With the same settings the source is reopened.
        """
        async with self._turn(config.name):
            old = self.index.find(config.name)
            if config.enabled:
                await self._replace(old, config, grace_s, declared=False)
            else:
                await self._remove_and_close(old, grace_s)

    async def reload(self, name: str, *, grace_s: float = _GRACE_S) -> None:
        """Reopen a source with its present settings, as `replace` does."""
        async with self._turn(name):
            old = self.index.find(name)
            if old.from_data:
                raise ConfigError(f"source {name!r} is of a row of a table; extract the tools of the table again")
            await self._replace(old, old.given, grace_s, declared=old.declared)

    async def remove(self, name: str, *, grace_s: float = _GRACE_S) -> None:
        """Remove a source and its tools, and close it after its calls in flight or after `grace_s` seconds."""
        async with self._turn(name):
            await self._remove_and_close(self.index.find(name), grace_s)

    async def apply(
        self, configs: Sequence[ExternalToolConfig], *, overrides: Mapping[str, ToolOverride], secrets: frozenset[str]
    ) -> SourceChanges:
        """Add, replace and remove the sources that differ in other settings.

        Sources that a program added or replaced are not changed. New ones connect in the background, as at startup. A
        source with new settings that do not work keeps its old ones, unless it is down.
        """
        self._overrides = overrides
        self._factory.add_secrets(secrets)
        wanted = {config.name: config for config in configs if config.enabled}
        gone = [name for name, managed in self.index.by_name.items() if managed.declared and name not in wanted]
        changes = SourceChanges()
        await asyncio.gather(*(self._apply_one(name, wanted.get(name), changes) for name in (*wanted, *gone)))
        return changes

    async def withdraw(self) -> None:
        """Remove all tools of all sources from the catalog permanently."""
        await self.exchange.withdraw(list(self.index.by_name.values()))

    async def close(self) -> None:
        """Close all sources concurrently; one that fails to close does not keep the others open."""
        sources = self.index.by_name.values()
        tasks = [managed.task for managed in sources if managed.task is not None]
        tasks += self._closing
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        opened = [managed.source for managed in sources if managed.source is not None]
        await asyncio.gather(*(source.close() for source in opened), return_exceptions=True)
        for managed in sources:
            managed.source = None

    def _turn(self, name: str) -> asyncio.Lock:
        return self._turns.setdefault(name, asyncio.Lock())

    def _add(
        self, config: ExternalToolConfig, before: Sequence[asyncio.Event] = (), *, declared: bool = False
    ) -> ManagedSource:
        if config.name in self.index.by_name:
            raise ConfigError(f"two sources are named {config.name!r}; rename one of them")
        self._last_rank += 1
        managed = self._new(config, self._last_rank, before, declared=declared)
        self.index.by_name[config.name] = managed
        self._authorizer.install(config.name, managed.access)
        return managed

    def _new(
        self, config: ExternalToolConfig, rank: int, before: Sequence[asyncio.Event] = (), *, declared: bool
    ) -> ManagedSource:
        traits = self._factory.traits_of(config)
        tools = SourceTools(self._registry, config, self._overrides, traits=traits, rank=rank)
        access = self._authorizer.new_access(config.name)
        return ManagedSource(config, tools, access, self._connect, before=before, declared=declared)

    async def _connect(self, managed: ManagedSource) -> None:
        """Connect a source, record a failure, and emit an event if startup is over."""
        config = managed.config
        try:
            with _foreign_errors():
                source = managed.source or await self._make(managed)
                if isinstance(source, RecallingSource) and (tools := await source.recall()):
                    await self.exchange.fill(managed, source, tools)
                await self.exchange.fill(managed, source, await source.discover(), answered=True)
        except ToolError as error:
            managed.mark_down(error, self._redactor)
            if config.required:
                raise ConfigError(f"required source {config.name!r} failed: {managed.error}", cause=error) from error
        finally:
            managed.entered.set()
            if not managed.is_placeholder:
                self.index.connecting.discard(config.name)
        if self._started:
            self.monitor.report(config.name, "down" if managed.error else "up", managed.error or "")
        if isinstance(managed.source, LiveSource):
            managed.source.watch(self.monitor)

    async def _make(self, managed: ManagedSource) -> ToolSource:
        managed.source = await self._build(managed)
        return managed.source

    async def _build(self, managed: ManagedSource) -> ToolSource:
        await self._protect_files(managed.config)
        return await self._factory.build(managed)

    async def _protect_files(self, config: ExternalToolConfig) -> None:
        if self._started and self._protected is not None:  # the files of the first sources are protected already
            await asyncio.to_thread(self._protected.add, config)

    async def _replace(self, old: ManagedSource, config: ExternalToolConfig, grace_s: float, *, declared: bool) -> None:
        new = self._new(config, old.tools.rank, declared=declared)
        try:
            with _foreign_errors():
                source = await self._make(new)
                prepared = await self.exchange.prepare(new, source)
            await self.exchange.replace(old, new, prepared)
        except BaseException as raised:
            if new.source is not None:
                await new.source.close()
            if isinstance(raised, ToolError):
                raised.conceal(self._redactor.message)
            raise
        self._emit(config.name, EventCode.SOURCE_UP, {"state": "up", "detail": "replaced"})
        if isinstance(source, LiveSource):
            source.watch(self.monitor)
        await self._move_subscriptions(old.source, source)
        await _cancel(old.task)
        self._close_later(old, grace_s)
        await self.exchange.readmit_collided()

    async def _move_subscriptions(self, old: ToolSource | None, new: ToolSource) -> None:
        """Subscribe the new source to the resources of the old one, and report each of them as updated."""
        if isinstance(old, ContentSource) and isinstance(new, ContentSource):
            for uri in old.subscriptions:
                with suppress(ToolError):  # it may have no such resource
                    await new.subscribe(uri)
                self.monitor.resource_updated(new, uri)

    async def _apply_one(self, name: str, config: ExternalToolConfig | None, changes: SourceChanges) -> None:
        """Apply other settings to one source of the configuration; None removes it."""
        async with self._turn(name):
            managed = self.index.by_name.get(name)
            if managed is None:
                if config is not None:
                    await self._protect_files(config)  # before this returns: connecting may take longer
                    self._add_later(config)
                    changes.added.append(name)
            elif not managed.declared:
                if config is not None and config != managed.given:
                    changes.failed[name] = "this program has replaced the source of this name by another"
            elif config is None:
                await self._remove(managed)
                self._close_later(managed)
                changes.removed.append(name)
            elif config != managed.given or not managed.tools.has_overrides(self._overrides):
                await self._apply_settings(managed, config, changes)

    async def _apply_settings(self, old: ManagedSource, config: ExternalToolConfig, changes: SourceChanges) -> None:
        try:
            if old.state(self._redactor).state == "down":  # there is nothing to lose
                await self._remove(old)
                self._close_later(old)
                self._add_later(config)
            else:
                await self._replace(old, config, _GRACE_S, declared=True)
        except ToolError as error:
            changes.failed[config.name] = str(error)
        else:
            changes.replaced.append(config.name)

    def _add_later(self, config: ExternalToolConfig) -> None:
        """Connect a source in the background; the report shows the result."""
        task = self.index.start(self._add(config, declared=True))
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    async def _remove(self, managed: ManagedSource) -> None:
        """Remove a source and its tools without closing it."""
        name = managed.config.name
        del self.index.by_name[name]
        await _cancel(managed.task)
        await self.exchange.withdraw([managed])
        self._authorizer.install(name, self._authorizer.new_access(name))
        await self.exchange.readmit_collided()

    async def _remove_and_close(self, managed: ManagedSource, grace_s: float) -> None:
        await self._remove(managed)
        if managed.source is not None:
            await self._close_after_calls(managed.source, grace_s)

    def _close_later(self, old: ManagedSource, grace_s: float = _GRACE_S) -> None:
        """Close a source in the background after its calls."""
        if old.source is not None:
            closing = asyncio.get_running_loop().create_task(self._close_after_calls(old.source, grace_s))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _close_after_calls(self, source: ToolSource, grace_s: float) -> None:
        try:
            await self._finish_calls(source, within_s=grace_s)
        finally:
            await source.close()


class SourceChanges(Struct, frozen=True):
    """The sources that other settings added, replaced and removed, and why others of them were not changed."""

    added: list[str] = field(default_factory=list[str])
    replaced: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])


async def _wait_started(sources: Sequence[ManagedSource], wait_s: float | None) -> None:
    """Wait for the required sources, and for the others until the timeout or until a required one fails."""
    loop = asyncio.get_running_loop()
    required = {managed.task for managed in sources if managed.task is not None and managed.config.required}
    others = [managed for managed in sources if not managed.config.required]
    waits = {loop.create_task(_wait_ready(managed, whole=wait_s is None)) for managed in others}
    try:
        late = await _wait_all({*required, *waits}, timeout=wait_s) & required
        await _wait_all(late, timeout=None)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def _wait_all(tasks: set[asyncio.Task[None]], *, timeout: float | None) -> set[asyncio.Task[None]]:  # noqa: ASYNC109 - the name that asyncio.wait uses
    """Wait for all tasks or raise the first exception; return the tasks that are not done in time."""
    if not tasks:
        return tasks
    done, late = await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()
    return late


async def _wait_ready(managed: ManagedSource, *, whole: bool) -> None:
    """Wait until a source has tools in the catalog or has failed; with `whole`, until the source has answered."""
    if whole and managed.task is not None:
        await asyncio.wait([managed.task])
    else:
        await managed.entered.wait()


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextmanager
def _foreign_errors() -> Generator[None]:
    """Raise any exception of a source as a ToolError."""
    try:
        yield
    except ToolError:
        raise
    except (Exception, SystemExit) as raised:
        raise ToolConnectionError(f"{type(raised).__name__}: {raised}", cause=raised) from raised
