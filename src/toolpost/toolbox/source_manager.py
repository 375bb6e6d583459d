"""Connect the configured sources and keep their tools in the catalog; no source delays another."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from toolpost.auth.credentials import (
    Authorizer,
    SourceAccess,
    discovery_credential,
    named_secrets,
    secrets_of,
    static_credential,
    substituted,
    with_environment,
)
from toolpost.auth.secret import read_env_file
from toolpost.catalog.lock import Pin
from toolpost.catalog.seen_definitions import SeenDefinitions
from toolpost.configuration.lint import SourceListing
from toolpost.configuration.literal_secrets import MIN_SECRET
from toolpost.contracts.calls import Credential
from toolpost.contracts.errors import (
    ConfigError,
    ToolConnectionError,
    ToolError,
    ToolSourceDownError,
)
from toolpost.contracts.events import EventCode
from toolpost.contracts.source_kinds import AuthType, TransportType
from toolpost.contracts.sources import (
    ContentSource,
    CredentialProvider,
    LiveSource,
    RecallingSource,
    SourceHealth,
    ToolSource,
)
from toolpost.contracts.spec import Tool
from toolpost.policy.redaction import Redactor, one_line
from toolpost.toolbox.idle_sources import ApprovedSource, IdleSource
from toolpost.toolbox.source_tools import (
    Catalog,
    CatalogDraft,
    Pinning,
    PreparedTool,
    SourcePins,
    SourceTools,
    bare_name,
    free_replaced,
)
from toolpost.transports.base import Services, Transport
from toolpost.transports.registry import find_transport, make_source

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig, ToolOverride
    from toolpost.contracts.manuals import DescribedCommands
    from toolpost.contracts.questions import Question

ProviderFactory: TypeAlias = "Callable[[ExternalToolConfig], CredentialProvider]"
ConnectionState: TypeAlias = Literal["up", "connecting", "down", "idle"]
Emit = Callable[[str, EventCode, Mapping[str, Any]], None]
_UNPINNED = Pinning()
ContentListener = Callable[[str, str | None], None]


class FinishCalls(Protocol):
    """Wait until no call runs on a source any more, for at most `within_s` seconds."""

    def __call__(self, source: ToolSource, *, within_s: float) -> Awaitable[None]: ...


async def _no_calls(source: ToolSource, *, within_s: float) -> None:
    pass


_LEVELS = {"debug": 10, "info": 20, "notice": 20, "warning": 30, "error": 40}
_LONGEST_LOG = 4000
_CONNECTING = "it is still connecting; a call to one of its tools waits for it"
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0
_MAX_DRAFTS = 5
_GRACE_S = 30.0


class SourceState(Struct, frozen=True, kw_only=True):
    """The state of a source: how many tools it has, or the error.

    A source is `connecting` until its first answer. Its tools may be in the catalog before that, from a cached
    listing; if they are not, the source is not `ok` yet. An `idle` source connects with the first call to its tools.
    """

    name: str
    transport: str
    ok: bool
    tools: int = 0
    error: str | None = None
    state: ConnectionState = "up"


class SourceChanges(Struct, frozen=True):
    """The sources that other settings added, replaced and removed, and why others of them stay as they were."""

    added: list[str] = field(default_factory=list[str])
    replaced: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])


class _ManagedSource:
    """One source, its tools in the catalog, the task that connects it, and its last error.

    Its tools enter the catalog once every event of `before` is set: `entered` of the sources before it.
    """

    def __init__(
        self,
        config: ExternalToolConfig,
        tools: SourceTools,
        access: SourceAccess,
        before: Sequence[asyncio.Event] = (),
    ) -> None:
        self.config = config
        self.tools = tools
        self.access = access
        self.before = before
        self.given = config  # before variables are filled in
        self.declared = False  # by the configuration, not added by a program
        self.is_placeholder = False  # its tools in the catalog are those that rows describe; no server has listed any
        self.from_rows = False  # it was added for rows of a table, and is used for these alone
        self.from_data = False  # its address, too, comes from data
        self.entered = asyncio.Event()  # also set when it failed, or startup is over
        self.source: ToolSource | None = None
        self.task: asyncio.Task[None] | None = None
        self.error: str | None = None
        self.fault: ToolError | None = None
        self.failures = 0
        self.retry_at = 0.0
        self.listed = False  # it has listed tools, and may wait for the sources before it
        self.filled = asyncio.Event()
        self.filling = asyncio.Lock()  # serializes listings
        self.answered = False

    @property
    def connecting(self) -> bool:
        """Whether the source has not answered yet."""
        return not self.answered and self.task is not None and not self.task.done()

    @property
    def is_idle(self) -> bool:
        """Whether the source waits for the first call before it connects."""
        waits = isinstance(self.source, ApprovedSource) and not self.source.is_connected
        return waits or self._may_start

    @property
    def _may_start(self) -> bool:
        """Whether the first call connects the source, without further approval."""
        return self.is_placeholder and self.task is None

    def mark_down(self, fault: ToolError, redactor: Redactor) -> None:
        """Record why connecting failed, and back off exponentially."""
        fault.conceal(redactor.message)
        self.fault, self.error, self.answered = fault, str(fault), True
        self.failures += 1
        self.retry_at = time.monotonic() + min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2.0 ** (self.failures - 1))

    def mark_up(self) -> None:
        """Clear the error and the backoff; the tools are now those that the source listed."""
        self.is_placeholder = False
        self.fault, self.error, self.failures, self.answered = None, None, 0, True

    @property
    def can_retry(self) -> bool:
        """Whether a call may connect the source; a live source reconnects itself, and wrong settings stay wrong."""
        if self._may_start:
            return True
        retryable = self.fault is not None and not isinstance(self.fault, ConfigError)
        return retryable and not isinstance(self.source, LiveSource) and time.monotonic() >= self.retry_at

    def state(self, redactor: Redactor) -> SourceState:
        source, error = self.source, self.error
        if error is None and isinstance(source, LiveSource) and source.health.state == "down":
            error = redactor.redact(source.health.detail)
        state: ConnectionState = "up" if error is None else "down"
        if self.is_idle:
            state = "idle"
        elif self.connecting:
            state, error = "connecting", None if self.filled.is_set() else _CONNECTING
        return SourceState(
            name=self.config.name,
            transport=str(self.config.transport),
            ok=error is None,
            tools=self.tools.listing.offered if error is None else 0,
            error=error,
            state=state,
        )

    def listing(self) -> SourceListing:
        config, source = self.config, self.source
        personal = config.auth_type is AuthType.OAUTH2_USER or self.access.provider is not None
        up = not isinstance(source, LiveSource) or source.health.state == "up"
        sure = up and not personal and not self.connecting and self.error is None
        listing = self.tools.listing
        return SourceListing(config, tuple(listing.tools), tuple(listing.problems), sure)


class SourceManager:
    """Connect the sources of one Toolbox, watch them, and update the catalog when their tools change.

    While the Toolbox is open, sources of every transport can be added, replaced and removed; calls in flight finish,
    and no other source is touched.

    `resolve` replaces `${VAR}` in configurations, which loading a file has already done. `account_credentials` makes
    the provider of users' own credentials for a source. Tools that differ from what `pinning` has are held back or
    reported. `secrets` are those of the whole configuration. `finish_calls` waits for the calls of a source that is to
    be closed.
    """

    def __init__(
        self,
        registry: Catalog,
        authorizer: Authorizer,
        *,
        transports: Mapping[str, Transport] | None = None,
        overrides: Mapping[str, ToolOverride] | None = None,
        services: Services | None = None,
        resolve: bool = True,
        redactor: Redactor | None = None,
        emit: Emit = lambda _name, _code, _facts: None,
        account_credentials: ProviderFactory | None = None,
        pinning: Pinning = _UNPINNED,
        secrets: frozenset[str] = frozenset(),
        finish_calls: FinishCalls = _no_calls,
    ) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._transports = transports
        self._overrides = overrides or {}
        self._services = services or Services()
        self._resolve = resolve
        self._redactor = redactor or Redactor()
        self._emit = emit
        self._account_credentials = account_credentials
        self._pinning = pinning
        self._secrets = secrets
        self._finish_calls = finish_calls
        self._closing: set[asyncio.Task[None]] = set()  # sources that were replaced, after their last calls
        self._turns: dict[str, asyncio.Lock] = {}  # one change at a time for each name
        self._last_rank = 0
        self._sources: dict[str, _ManagedSource] = {}
        self.connecting: set[str] = set()
        self._started = False
        self.files: frozenset[tuple[str, str]] = frozenset()  # those that sources have read, with the source's name
        self.protect: Callable[[], object] = lambda: None  # resolves `files`
        self.protect_source: Callable[[ExternalToolConfig], object] = lambda _config: None  # one that came later
        self._exchanging = asyncio.Lock()  # of two drafts of the catalog one would be made in vain
        self._content_listeners: list[ContentListener] = []
        self.joining = False  # while a source enters the catalog for the first time

    @property
    def states(self) -> list[SourceState]:
        """The current state of each source."""
        return [managed.state(self._redactor) for managed in self._sources.values()]

    @property
    def problems(self) -> list[str]:
        """Tools that are left out of the catalog or held back and why, and patterns that are not checked."""
        filled = [(managed.tools.listing, managed.tools.held) for managed in self._sources.values()]
        problems = [problem for listing, held in filled for problem in (*listing.problems, *held, *listing.unchecked)]
        return [self._redactor.redact(problem) for problem in problems]

    @property
    def left_out(self) -> list[str]:
        """Sources that are down, and why."""
        return [f"source {one.name!r} is left out: {one.error}" for one in self.states if one.state == "down"]

    @property
    def listings(self) -> list[SourceListing]:
        """The listing of each source, under the names before any override."""
        return [managed.listing() for managed in self._sources.values()]

    def pins(self, name: str) -> dict[str, Pin]:
        """Return the current definitions of a source's tools, by their names within the source."""
        tools = self._sources[name].tools
        if tools.pins is None:
            return {}
        return {bare_name(tool): tools.pins.pin(tool) for tool in tools.listing.tools.values()}

    def collisions(self, name: str) -> Mapping[str, str]:
        """Return the tools of a source whose names were taken, with the problem."""
        return self._sources[name].tools.listing.collisions

    def source(self, name: str) -> ToolSource | None:
        """Return the source of this name, if it is open."""
        managed = self._sources.get(name)
        return None if managed is None else managed.source

    async def load_all(self, configs: Sequence[ExternalToolConfig], *, wait_s: float | None = None) -> None:
        """Connect all sources concurrently; ConfigError when a required one fails.

        Sources that are not required are awaited for at most `wait_s` seconds, and not at all if their listing is
        cached; they enter the catalog later. Tools enter in the order of the configuration, so that a model sees the
        same list every time, and the same one of two tools with one name wins.
        """
        sources: list[_ManagedSource] = []
        for config in configs:
            if config.enabled:
                before = [managed.entered for managed in sources]
                sources.append(self._add(config, before, declared=True))
        for managed in sources:
            self._start(managed)
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
        """Connect one more source and wait for it; a source that is not `enabled` is left out.

        A source that does not connect is reported as down and tried again by calls; one that is `required` is left out
        and raises ConfigError. It is left out, too, when this is cancelled.
        """
        async with self._turn(config.name):
            if not config.enabled:
                return
            managed = self._add(config)
            try:
                await self._start(managed)
            except (ConfigError, asyncio.CancelledError):
                await self._drop(managed)
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
        network policy applies to it. With a `question`, a person has to approve it before the source is connected.
        """
        async with self._turn(config.name):
            managed = self._add(config)
            managed.from_rows, managed.from_data = True, from_data
            if question is None:
                managed.is_placeholder = True
                self.connecting.add(config.name)  # calls have to wait for the listing of the server
                source: ToolSource = IdleSource(config, tools)
            else:
                managed.source = source = ApprovedSource(config, tools, question, partial(self._build, managed))
            prepared = await asyncio.to_thread(managed.tools.prepare, source, tools)
            await self._exchange(managed, prepared, (), answered=question is not None)

    @property
    def open_configs(self) -> list[ExternalToolConfig]:
        """The settings of the sources of the configuration, and of those that the program added."""
        return [managed.config for managed in self._sources.values() if not managed.from_rows]

    async def replace(self, config: ExternalToolConfig, *, grace_s: float = _GRACE_S) -> None:
        """Exchange the source of this name for one with other settings, in one step once that one has connected.

        Calls in flight finish on the old source, which is closed after the last of them or after `grace_s` seconds.
        Raises ToolError and leaves the old source as it is when the new one does not connect. A source that is not
        `enabled` is only removed. With the same settings the source is opened anew.
        """
        async with self._turn(config.name):
            old = self._find(config.name)
            if config.enabled:
                await self._replace(old, config, grace_s, declared=False)
            else:
                await self._drop(old, grace_s)

    async def reload(self, name: str, *, grace_s: float = _GRACE_S) -> None:
        """Open a source anew with the settings that it has, as `replace` does."""
        async with self._turn(name):
            old = self._find(name)
            if old.from_data:
                raise ConfigError(f"source {name!r} is of a row of a table; extract the tools of the table again")
            await self._replace(old, old.given, grace_s, declared=old.declared)

    async def remove(self, name: str, *, grace_s: float = _GRACE_S) -> None:
        """Take the tools of a source out of the catalog, and close it once its calls in flight have ended.

        After `grace_s` seconds it is closed in any case.
        """
        async with self._turn(name):
            await self._drop(self._find(name), grace_s)

    async def apply(
        self, configs: Sequence[ExternalToolConfig], *, overrides: Mapping[str, ToolOverride], secrets: frozenset[str]
    ) -> SourceChanges:
        """Make the sources of the configuration those of other settings: add, replace and remove what differs.

        Sources that a program added or replaced are left alone. New ones connect in the background, as at startup. One
        whose new settings do not work stays as it was, unless it is down anyway.
        """
        self._overrides, self._secrets = overrides, self._secrets | secrets
        self._redactor.learn(secrets)
        wanted = {config.name: config for config in configs if config.enabled}
        gone = [name for name, managed in self._sources.items() if managed.declared and name not in wanted]
        changes = SourceChanges()
        await asyncio.gather(*(self._change(name, wanted.get(name), changes) for name in (*wanted, *gone)))
        return changes

    async def _change(self, name: str, config: ExternalToolConfig | None, changes: SourceChanges) -> None:
        """Bring one source of the configuration to other settings; None removes it."""
        async with self._turn(name):
            managed = self._sources.get(name)
            if managed is None:
                if config is not None:
                    self._add_later(config)
                    changes.added.append(name)
            elif not managed.declared:
                if config is not None and config != managed.given:
                    changes.failed[name] = "this program has put a source of its own in the place of this name"
            elif config is None:
                await self._take_out(managed)
                self._retire(managed, _GRACE_S)
                changes.removed.append(name)
            elif config != managed.given or not managed.tools.has_overrides(self._overrides):
                await self._change_to(managed, config, changes)

    async def _change_to(self, old: _ManagedSource, config: ExternalToolConfig, changes: SourceChanges) -> None:
        try:
            if old.state(self._redactor).state == "down":  # there is nothing to lose
                await self._take_out(old)
                self._retire(old, _GRACE_S)
                self._add_later(config)
            else:
                await self._replace(old, config, _GRACE_S, declared=True)
        except ToolError as error:
            changes.failed[config.name] = str(error)
        else:
            changes.replaced.append(config.name)

    def _add_later(self, config: ExternalToolConfig) -> None:
        """Connect a source in the background; the report says how that went."""
        task = self._start(self._add(config, declared=True))
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    def _turn(self, name: str) -> asyncio.Lock:
        return self._turns.setdefault(name, asyncio.Lock())

    def _find(self, name: str) -> _ManagedSource:
        managed = self._sources.get(name)
        if managed is None:
            raise ConfigError(f"there is no source {name!r}; there are: {', '.join(self._sources) or 'none'}")
        return managed

    def _add(
        self, config: ExternalToolConfig, before: Sequence[asyncio.Event] = (), *, declared: bool = False
    ) -> _ManagedSource:
        if config.name in self._sources:
            raise ConfigError(f"two sources are named {config.name!r}; rename one of them")
        self._last_rank += 1
        managed = self._sources[config.name] = self._new(config, self._last_rank, before, declared=declared)
        self._authorizer.install(config.name, managed.access)
        return managed

    def _new(
        self, config: ExternalToolConfig, rank: int, before: Sequence[asyncio.Event] = (), *, declared: bool
    ) -> _ManagedSource:
        tools = SourceTools(self._registry, config, self._overrides, rank=rank)
        managed = _ManagedSource(config, tools, self._authorizer.new_access(config.name), before)
        managed.declared = declared
        return managed

    async def _replace(
        self, old: _ManagedSource, config: ExternalToolConfig, grace_s: float, *, declared: bool
    ) -> None:
        new = self._new(config, old.tools.rank, declared=declared)
        try:
            with _foreign_errors():
                source = await self._make(new)
                prepared = await asyncio.to_thread(new.tools.prepare, source, await source.discover())
                self._learn_secrets(new, source)
                await self._protect_files(config.name, source.files)
            await self._exchange(new, prepared, source.problems, answered=True, instead_of=old)
        except BaseException as raised:
            if new.source is not None:
                await new.source.close()
            if isinstance(raised, ToolError):
                raised.conceal(self._redactor.message)
            raise
        self._emit(config.name, EventCode.SOURCE_UP, {"state": "up", "detail": "replaced"})
        if isinstance(source, LiveSource):
            source.watch(self)
        await self._pass_subscriptions(old.source, source)
        await _cancel(old.task)
        self._retire(old, grace_s)
        await self._offer_again()

    async def _pass_subscriptions(self, old: ToolSource | None, new: ToolSource) -> None:
        """Have whoever wanted news of a resource get them from the new source, beginning with this one."""
        if isinstance(old, ContentSource) and isinstance(new, ContentSource):
            for uri in old.subscriptions:
                with suppress(ToolError):  # it may have no such resource
                    await new.subscribe(uri)
                self.resource_updated(new, uri)

    async def _offer_again(self) -> None:
        """Put tools into the catalog whose names were taken, and may be free now."""
        for managed in list(self._sources.values()):
            listing = managed.tools.listing
            if listing.collided and managed.source is not None:
                tools = [*listing.tools.values(), *listing.collided]
                await self.tools_found(managed.source, tools, managed.source.problems)

    def _retire(self, old: _ManagedSource, grace_s: float) -> None:
        """Close a source that is not in use any more, in the background after its calls."""
        if old.source is not None:
            closing = asyncio.get_running_loop().create_task(self._close_after_calls(old.source, grace_s))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _take_out(self, managed: _ManagedSource) -> None:
        """Take a source and its tools out."""
        name = managed.config.name
        del self._sources[name]
        await _cancel(managed.task)
        await self._withdraw([managed])
        self._authorizer.install(name, self._authorizer.new_access(name))
        await self._offer_again()

    async def _drop(self, managed: _ManagedSource, grace_s: float = 0.0) -> None:
        """Take a source and its tools out, and close it after its calls."""
        await self._take_out(managed)
        if managed.source is not None:
            await self._close_after_calls(managed.source, grace_s)

    async def _close_after_calls(self, source: ToolSource, grace_s: float) -> None:
        try:
            await self._finish_calls(source, within_s=grace_s)
        finally:
            await source.close()

    def _start(self, managed: _ManagedSource) -> asyncio.Task[None]:
        """Start the task that connects a source."""
        managed.answered = False
        self.connecting.add(managed.config.name)
        managed.task = asyncio.get_running_loop().create_task(self._run_connect(managed))
        return managed.task

    async def _run_connect(self, managed: _ManagedSource) -> None:
        """Connect a source, record a failure, and emit an event if startup is over."""
        config = managed.config
        try:
            await self._connect(managed)
        except ToolError as error:
            managed.mark_down(error, self._redactor)
            if config.required:
                raise ConfigError(f"required source {config.name!r} failed: {managed.error}", cause=error) from error
        finally:
            managed.entered.set()
            if not managed.is_placeholder:
                self.connecting.discard(config.name)
        if self._started:
            code = EventCode.SOURCE_UP if managed.error is None else EventCode.SOURCE_DOWN
            self._emit(config.name, code, {"state": "down" if managed.error else "up", "detail": managed.error or ""})
        if isinstance(managed.source, LiveSource):
            managed.source.watch(self)

    async def _connect(self, managed: _ManagedSource) -> None:
        with _foreign_errors():
            source = managed.source or await self._make(managed)
            if isinstance(source, RecallingSource) and (tools := await source.recall()):
                await self._fill(managed, source, tools)
            await self._fill(managed, source, await source.discover(), answered=True)

    async def _make(self, managed: _ManagedSource) -> ToolSource:
        """Make the source of a name."""
        managed.source = await self._build(managed)
        return managed.source

    async def _build(self, managed: _ManagedSource) -> ToolSource:
        """Build a source; accounts at its service can be connected before what it is made of is imported."""
        if self._started:  # what is there at the start is protected already
            await asyncio.to_thread(self.protect_source, managed.config)
        if managed.config.unusable:
            raise ConfigError(managed.config.unusable)
        from toolpost.connecting.presets import with_token_variable  # noqa: PLC0415 - only with sources, and slow

        # Data never names a variable of this process: its value would be sent to the address that is beside it.
        filled_config = managed.config if managed.from_data else with_token_variable(managed.config)
        resolve = not managed.from_data and (self._resolve or not managed.declared)
        config = self._with_env_file(with_environment(filled_config) if resolve else filled_config)
        managed.config = managed.tools.config = config
        filled_in = substituted(filled_config, config, os.environ)
        self._redactor.learn(secrets_of(config) | filled_in)
        managed.access.secrets = named_secrets(config)
        managed.tools.pins = self._pins_of(managed, config, self._secrets | filled_in)
        if config.auth_type is AuthType.OAUTH2_USER and self._account_credentials is not None:
            await _import("toolpost.toolbox.accounts")
        credential = _credential(config, managed.access, self._account_credentials)
        await _import(find_transport(config.transport, self._transports).source_class.partition(":")[0])
        return self._make_source(config, credential, from_data=managed.from_data)

    def _pins_of(
        self, managed: _ManagedSource, config: ExternalToolConfig, secrets: frozenset[str]
    ) -> SourcePins | None:
        """Return what the tools of a source are compared with; the operator's own code is not recorded."""
        is_recorded = config.transport is not TransportType.PYTHON and not managed.from_data
        lock, folder, blocks = self._pinning
        seen = SeenDefinitions.of(folder, config) if folder is not None and is_recorded else None
        if lock is None and seen is None:
            return None
        loop = asyncio.get_running_loop()

        def report(name: str, facts: Mapping[str, Any]) -> None:  # from the thread that compares a listing
            loop.call_soon_threadsafe(partial(self._emit, name, EventCode.DEFINITION_CHANGED, facts))

        return SourcePins(lock, config, secrets, seen=seen, blocks=blocks, report=report)

    def _make_source(self, config: ExternalToolConfig, credential: Credential, *, from_data: bool) -> ToolSource:
        """Build a source with its services; it may build others of its kind, which share its credential."""
        services = replace(
            self._services,
            credential=credential,
            network=replace(self._services.network, trace_context=config.trace_context, from_data=from_data),
            emit=partial(self._emit, config.name),
            make=partial(self._make_source, credential=credential, from_data=from_data),
            describe_commands=self._describe_commands,
        )
        return make_source(config, services, self._transports)

    async def _describe_commands(self, config: ExternalToolConfig) -> DescribedCommands:
        """Read the commands that a manual describes: sources do not know each other, so one is injected."""
        from toolpost.sources.utcp.cli_export import export_cli_commands  # noqa: PLC0415 - few need it

        return await export_cli_commands(config, network=self._services.network)

    def _with_env_file(self, config: ExternalToolConfig) -> ExternalToolConfig:
        """Merge the variables of `env_file` below `env`; their values are secrets."""
        if config.env_file is None:
            return config
        try:
            variables = read_env_file(Path(config.env_file))
        except FileNotFoundError:
            raise ConfigError(f"env_file {config.env_file!r} does not exist") from None
        self._redactor.learn({value for value in variables.values() if len(value) >= MIN_SECRET})
        return config.model_copy(update={"env": {**variables, **config.env}})

    async def _fill(
        self, managed: _ManagedSource, source: ToolSource, found: Sequence[Tool], *, answered: bool = False
    ) -> None:
        """Put a source's tools into the catalog when its turn has come."""
        async with managed.filling:
            # In a thread: checking hundreds of tools takes a while.
            prepared = await asyncio.to_thread(managed.tools.prepare, source, found)
            managed.listed = True
            for entered in managed.before:
                await entered.wait()
            self._learn_secrets(managed, source)
            await self._protect_files(managed.config.name, source.files)
            await self._exchange(managed, prepared, source.problems, answered=answered)
        managed.entered.set()

    async def _protect_files(self, name: str, files: Collection[str]) -> None:
        """Protect the files that a source has read; a document may have thousands."""
        if files:
            self.files = self.files.union((file, name) for file in files)
            await asyncio.to_thread(self.protect)

    def _learn_secrets(self, managed: _ManagedSource, source: ToolSource) -> None:
        """Redact the secrets that a source found in what describes its tools."""
        self._redactor.learn(source.secrets)
        managed.access.secrets |= source.secrets

    async def _exchange(
        self,
        managed: _ManagedSource,
        prepared: Sequence[PreparedTool],
        problems: Sequence[str],
        *,
        answered: bool,
        instead_of: _ManagedSource | None = None,
    ) -> None:
        """Replace the tools of a source in the catalog: drafted in a thread, put into effect in one step.

        With `instead_of` they take the place of those of another source, and the source takes its name.
        """
        make_draft = partial(
            managed.tools.draft, prepared, problems, instead_of=None if instead_of is None else instead_of.tools
        )
        try:
            async with self._exchanging:
                replaced: list[Any] | None = None
                for _ in range(_MAX_DRAFTS):
                    draft = await asyncio.to_thread(make_draft)
                    if (replaced := self._commit(managed, draft, instead_of, answered=answered)) is not None:
                        break
                if replaced is None:  # the catalog changes all the time, but not between these two steps
                    replaced = self._commit(managed, make_draft(), instead_of, answered=answered)
        finally:
            managed.filled.set()
        if replaced:
            await asyncio.to_thread(free_replaced, replaced)

    def _commit(
        self, managed: _ManagedSource, draft: CatalogDraft, instead_of: _ManagedSource | None, *, answered: bool
    ) -> list[Any] | None:
        """Put a draft into effect and return what it replaced; None when it is out of date."""
        self.joining = instead_of is None and not managed.filled.is_set()
        try:
            replaced = managed.tools.commit(draft)
        finally:
            self.joining = False
        if replaced is not None and instead_of is not None:
            self._take_over(managed, instead_of)
        if answered and replaced is not None:
            if managed.is_placeholder:
                self.connecting.discard(managed.config.name)
            managed.mark_up()
        return replaced

    def _take_over(self, new: _ManagedSource, old: _ManagedSource) -> None:
        """Put a source in the place of another, whose tools the catalog has no more."""
        old.tools.give_up()
        new.entered.set()
        self._sources[new.config.name] = new
        self._authorizer.install(new.config.name, new.access)

    async def settled(self, names: Collection[str] | None = None) -> None:
        """Wait until these sources, or all, have connected or failed to."""
        tasks = [managed.task for managed in self._sources.values() if names is None or managed.config.name in names]
        pending = [task for task in tasks if task is not None and not task.done()]
        if pending:
            await asyncio.wait(pending)

    def is_connecting(self, tool_name: str) -> bool:
        """Return whether a tool that is not in the catalog may come from a source that is connecting."""
        managed = self._source_of(tool_name)
        return managed is not None and (managed.connecting or managed.is_placeholder)

    def is_stale(self, tool_name: str) -> bool:
        """Return whether a tool is in the catalog from a cached listing or a table, not yet from its server."""
        if not self.connecting:
            return False
        managed = self._source_of(tool_name)
        if managed is None:
            return False
        return managed.is_placeholder or (managed.connecting and isinstance(managed.source, LiveSource))

    def may_have(self, tool_name: str) -> bool:
        managed = self._source_of(tool_name)
        return managed is not None and managed.state(self._redactor).state != "up"

    async def wait_for_tool(self, tool_name: str, *, within_s: float) -> None:
        managed = self._source_of(tool_name)
        if managed is None:
            return
        if managed.can_retry:
            self._start(managed)
        if managed.connecting and managed.task is not None:
            await asyncio.wait([managed.task], timeout=within_s)
        state = managed.state(self._redactor)
        if state.state == "connecting":
            message = f"source {state.name!r} is still connecting after {within_s:.1f} s; call again, or give it longer"
            raise ToolSourceDownError(message, tool_name=tool_name)
        if state.state == "down":
            category = managed.fault.category if isinstance(managed.fault, ConfigError) else None
            raise ToolSourceDownError(
                f"source {state.name!r} is down: {state.error}", tool_name=tool_name, category=category
            )

    def _source_of(self, tool_name: str) -> _ManagedSource | None:
        """Find the source of a tool by the canonical or the model name of the tool."""
        managed = self._sources.get(tool_name.partition(".")[0])
        if managed is not None or "." in tool_name:
            return managed
        sources = [one for name, one in self._sources.items() if tool_name.startswith(f"{name}__")]
        return max(sources, key=lambda one: len(one.config.name), default=None)

    async def tools_found(self, source: ToolSource, tools: Sequence[Tool], problems: Sequence[str]) -> None:
        """Replace the tools of a source in the catalog; of two concurrent listings the later one stays."""
        managed = self._sources.get(source.name)
        if managed is None or managed.source is not source:  # it was removed or replaced
            return
        async with managed.filling:
            prepared = await asyncio.to_thread(managed.tools.prepare, source, tools)
            await self._exchange(managed, prepared, problems, answered=True)

    def state_changed(self, source: ToolSource, state: SourceHealth) -> None:
        """Emit an event: a source came up or went down, unless it was removed or replaced."""
        if self.source(source.name) is not source:
            return
        code = EventCode.SOURCE_UP if state.state == "up" else EventCode.SOURCE_DOWN
        self._emit(source.name, code, {"state": state.state, "detail": self._redactor.redact(state.detail)})

    def logged(self, source: ToolSource, level: str, text: str) -> None:
        """Log and emit what the server of a source wrote to its log."""
        line = one_line(self._redactor.excerpt(text, _LONGEST_LOG))
        managed = self._sources.get(source.name)
        transport = managed.config.transport if managed else "removed"
        log = logging.getLogger(f"toolpost.sources.{transport}")
        log.log(_LEVELS.get(level, logging.ERROR), "%s: %s", source.name, line)
        self._emit(source.name, EventCode.SOURCE_LOGGED, {"level": level, "text": line})

    def contents_changed(self, source: ToolSource) -> None:
        """Notify listeners that a source lists other resources or prompts."""
        for listener in list(self._content_listeners):
            listener(source.name, None)

    def resource_updated(self, source: ToolSource, uri: str) -> None:
        """Notify listeners that a resource of a source has changed."""
        for listener in list(self._content_listeners):
            listener(source.name, uri)

    def content_sources(self) -> dict[str, ContentSource]:
        """Return the sources with resources and prompts, by name."""
        sources = {name: managed.source for name, managed in self._sources.items()}
        return {name: source for name, source in sources.items() if isinstance(source, ContentSource)}

    def subscribe_contents(self, listener: ContentListener) -> Callable[[], None]:
        """Call a function when the resources or prompts of a source change; return the function that ends it.

        It gets the name of the source, and the URI of a resource that was updated; None when the lists changed.
        """
        self._content_listeners.append(listener)
        return partial(self._content_listeners.remove, listener)

    async def withdraw(self) -> None:
        """Remove all tools of all sources from the catalog, for good."""
        await self._withdraw(list(self._sources.values()))

    async def _withdraw(self, sources: Sequence[_ManagedSource]) -> None:
        for managed in sources:
            managed.tools.withdrawn = True  # a listing may just be checked in a thread
        try:
            for managed in sources:
                await self._exchange(managed, (), (), answered=False)
        finally:
            for managed in sources:
                managed.tools.clear()  # those that a cancelled caller did not come to

    async def close(self) -> None:
        """Close every source concurrently; one that fails to close does not keep the others open."""
        tasks = [managed.task for managed in self._sources.values() if managed.task is not None]
        tasks += self._closing
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        opened = [managed.source for managed in self._sources.values() if managed.source is not None]
        await asyncio.gather(*(source.close() for source in opened), return_exceptions=True)
        for managed in self._sources.values():
            managed.source = None


async def _wait_started(sources: Sequence[_ManagedSource], wait_s: float | None) -> None:
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


async def _wait_all(tasks: set[asyncio.Task[None]], *, timeout: float | None) -> set[asyncio.Task[None]]:  # noqa: ASYNC109 - what asyncio.wait calls it
    """Wait for all tasks or raise the first exception; return the tasks that are not done in time."""
    if not tasks:
        return tasks
    done, late = await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()
    return late


async def _wait_ready(managed: _ManagedSource, *, whole: bool) -> None:
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
    """Raise whatever a source raises as a ToolError."""
    try:
        yield
    except ToolError:
        raise
    except (Exception, SystemExit) as raised:
        raise ToolConnectionError(f"{type(raised).__name__}: {raised}", cause=raised) from raised


async def _import(module: str) -> None:
    """Import a module in a thread: it may take a second, for which the event loop would stand."""
    if module and module not in sys.modules:
        with suppress(ModuleNotFoundError):  # an extra is missing, which `make_source` reports
            await asyncio.to_thread(import_module, module)


def _credential(
    config: ExternalToolConfig, access: SourceAccess, account_credentials: ProviderFactory | None
) -> Credential:
    """Return the credential that lists the tools; calls of users with their own accounts use those."""
    if config.auth_type is AuthType.OAUTH2_USER:
        if account_credentials is not None and access.provider is None:
            access.provider = account_credentials(config)
        return discovery_credential(config)
    access.shared = static_credential(config)
    return access.shared
