"""Create and connect the parts of a Toolbox: store, router, pending actions, recovery, sources, webhooks, built-ins."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.auth.credentials import Authorizer
from toolpost.builtin.loader import Builtins, is_builtin
from toolpost.builtin.specs import COLLECTIONS
from toolpost.catalog.lock import Lock
from toolpost.catalog.seen_definitions import SeenDefinitions
from toolpost.configuration.defaults import TENANTS_FOLDER
from toolpost.configuration.lint import lint_settings
from toolpost.configuration.literal_secrets import literal_secrets
from toolpost.configuration.protected_files import ProtectedFiles
from toolpost.contracts.source_kinds import AuthType
from toolpost.policy.paths import AllowedPaths, is_template
from toolpost.policy.redaction import Redactor, redacted_logs
from toolpost.policy.rules import Policy
from toolpost.runtime.attempt import ContextDefaults
from toolpost.runtime.pending import PendingActions
from toolpost.runtime.recovery import Recovery
from toolpost.runtime.router import ToolRouter
from toolpost.stores.agent_folders import TASK_FOLDER
from toolpost.stores.memory import MemoryStore
from toolpost.stores.sealing import CacheFolder
from toolpost.toolbox.local_tools import (
    WebProviders,
    builtin_parts,
    chosen_builtins,
    network_policy,
    register_local_tools,
)
from toolpost.toolbox.source_manager import SourceManager
from toolpost.toolbox.source_tools import Pinning
from toolpost.transports.base import Services
from toolpost.transports.registry import Plugins, load_plugins
from toolpost.wire.network import NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AsyncExitStack

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.chat import ChatModel
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.questions import OnPending
    from toolpost.contracts.sources import CredentialProvider, ToolSource
    from toolpost.contracts.spec import Tool
    from toolpost.contracts.storage import EventSink, Sealer, Store
    from toolpost.runtime.event_emitter import EventEmitter
    from toolpost.runtime.event_webhooks import EventWebhooks
    from toolpost.toolbox.accounts import AccountManager


CACHE_DIR = "documents"
LISTINGS_DIR = "listings"
DEFINITIONS_DIR = "definitions"


class ToolboxInputs(NamedTuple):
    """The arguments of a Toolbox, before it opens."""

    settings: Settings
    registry: ToolRegistry
    config: Path | None = None
    tools: Sequence[Tool] = ()
    sinks: Sequence[EventSink] = ()
    on_pending: OnPending | None = None
    secrets: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()
    credentials: Mapping[str, CredentialProvider] = MappingProxyType({})
    chat_model: ChatModel | None = None
    servers: Mapping[str, Any] = MappingProxyType({})
    resolved: bool = False


class ToolboxParts(NamedTuple):
    """The parts of an open Toolbox."""

    store: Store
    router: ToolRouter
    pending: PendingActions
    recovery: Recovery
    redactor: Redactor
    sources: SourceManager
    accounts: AccountsOnDemand
    webhooks: WebhooksOnDemand
    providers: WebProviders
    problems: Callable[[Settings], list[str]]


async def open_parts(inputs: ToolboxInputs, closing: AsyncExitStack) -> ToolboxParts:
    """Open the store, create the parts and fill the catalog; `closing` closes everything again."""
    settings, registry = inputs.settings, inputs.registry
    imported = [tool.spec.name for tool in inputs.tools if is_builtin(tool)]
    inputs = inputs._replace(tools=[tool for tool in inputs.tools if not is_builtin(tool)])
    store = _open_store(settings)
    closing.push_async_callback(store.close)
    plugins = load_plugins()
    authorizer = Authorizer(inputs.credentials)
    protected = ProtectedFiles(settings, config=inputs.config, tools=inputs.tools)
    redactor = Redactor({*inputs.secrets, *literal_secrets(settings)})
    router = _make_router(inputs, store, authorizer, redactor, protected)
    if router.tracer is not None:
        router.tracer.with_arguments = settings.telemetry.arguments
    closing.enter_context(redacted_logs(redactor))
    network = network_policy(settings)
    webhooks = WebhooksOnDemand(store, router.emitter, network)
    closing.push_async_callback(webhooks.close)
    accounts = AccountsOnDemand(partial(_make_accounts, settings, store, router, redactor, network))
    closing.push_async_callback(accounts.close)
    if any(source.auth_type is AuthType.OAUTH2_USER for source in settings.all_sources()):
        accounts.open()
    sources = _make_sources(inputs, plugins, authorizer, accounts, router, redactor, network)
    closing.push_async_callback(sources.close)
    protected.read, sources.protect, sources.protect_source = lambda: sources.files, protected.paths, protected.add
    pending = PendingActions(
        router, registry, store=store, emitter=router.emitter, redactor=redactor, background=router.background
    )
    accounts.attach(pending, sources.source)
    retention = settings.retention.to_retention()
    recovery = Recovery(router, pending, retention=retention, also=accounts.resume_waiting, absent=inputs.absent)
    task_folder = partial(router.context_defaults.folder, TASK_FOLDER)
    parts = builtin_parts(settings, store=lambda: store, network=lambda: network, task_folder=task_folder)
    builtins = Builtins(parts)
    closing.push_async_callback(builtins.close)
    chosen = {tool.spec.name: tool for names in (chosen_builtins(settings), imported) for tool in builtins.tools(names)}
    left_out = register_local_tools(registry, settings, [*chosen.values(), *inputs.tools], plugins)
    router.sources = sources
    await sources.load_all(settings.all_sources(), wait_s=settings.startup_wait_s)
    registry.define_collections({**COLLECTIONS, **settings.collections})
    registry.subscribe(lambda changes: None if sources.joining else router.emitter.emit_catalog_changes(changes))
    closing.push_async_callback(router.close)
    closing.push_async_callback(recovery.stop)
    await webhooks.apply(settings, pending)
    await recovery.start()

    def problems(settings: Settings) -> list[str]:
        findings = lint_settings(settings, registry, sources.listings, redactor.text)
        return [*left_out, *(finding.text for finding in findings)]

    return ToolboxParts(
        store=store,
        router=router,
        pending=pending,
        recovery=recovery,
        redactor=redactor,
        sources=sources,
        accounts=accounts,
        webhooks=webhooks,
        providers=WebProviders(builtins, parts, registry),
        problems=problems,
    )


class AccountsOnDemand:
    """The service for users' own accounts, created for the first source that needs it, which may come later.

    `on_open` is called with it then.
    """

    def __init__(self, make: Callable[[], AccountManager]) -> None:
        self._make = make
        self.manager: AccountManager | None = None
        self._parts: tuple[PendingActions, Callable[[str], ToolSource | None]] | None = None
        self.on_open: Callable[[AccountManager], object] = lambda _manager: None

    def attach(self, pending: PendingActions, source: Callable[[str], ToolSource | None]) -> None:
        """Set where pending calls are answered, and how to find the source of a name."""
        self._parts = (pending, source)
        if self.manager is not None:
            self.manager.attach(pending, source)

    def open(self) -> AccountManager:
        """Return the service; ConfigError when its settings contradict each other."""
        if self.manager is None:
            self.manager = self._make()
            if self._parts is not None:
                self.manager.attach(*self._parts)
            self.on_open(self.manager)
        return self.manager

    def credentials_for(self, config: ExternalToolConfig) -> CredentialProvider:
        """Return the credential provider of an OAuth source."""
        return self.open().credentials_for(config)

    async def resume_waiting(self, actions: PendingActions) -> None:
        """Resume the calls that wait for a sign-in that has happened."""
        if self.manager is not None:
            await self.manager.resume_waiting(actions)

    async def close(self) -> None:
        """Close the service."""
        if self.manager is not None:
            await self.manager.close()


def _make_accounts(
    settings: Settings, store: Store, router: ToolRouter, redactor: Redactor, network: NetworkPolicy
) -> AccountManager:
    from toolpost.toolbox.accounts import AccountManager  # noqa: PLC0415 - OAuth takes long to import, and few need it

    return AccountManager(
        settings.accounts,
        network,
        store=store,
        emitter=router.emitter,
        redactor=redactor,
        background=router.background,
    )


def _make_sources(
    inputs: ToolboxInputs,
    plugins: Plugins,
    authorizer: Authorizer,
    accounts: AccountsOnDemand,
    router: ToolRouter,
    redactor: Redactor,
    network: NetworkPolicy,
) -> SourceManager:
    settings = inputs.settings
    paths, home = settings.tools.allowed_paths, settings.data_dir
    services = Services(
        roots=None if paths is None else tuple(str(path) for path in paths if not is_template(path)),
        chat_model=inputs.chat_model,
        servers=inputs.servers,
        network=network,
        documents=None if home is None else CacheFolder(home / CACHE_DIR, _sealer(settings, home)),
        listings=None if home is None else CacheFolder(home / LISTINGS_DIR, _sealer(settings, home)),
        artifacts=router.store.artifacts,
    )
    return SourceManager(
        inputs.registry,
        authorizer,
        transports=plugins.transports,
        overrides=inputs.settings.overrides,
        services=services,
        emit=router.emitter.emit_source,
        resolve=not inputs.resolved,
        redactor=redactor,
        account_credentials=accounts.credentials_for,
        pinning=Pinning(
            _open_lock(settings), None if home is None else home / DEFINITIONS_DIR, lambda: router.blocks_changes
        ),
        secrets=inputs.secrets.union(literal_secrets(settings)),
        finish_calls=router.inflight.finish_on,
    )


def seen_definitions(data_dir: Path, config: ExternalToolConfig) -> SeenDefinitions:
    """Return the definitions of a source's tools as a Toolbox with this data folder has first seen them."""
    return SeenDefinitions.of(data_dir / DEFINITIONS_DIR, config)


def _open_lock(settings: Settings) -> Lock | None:
    """Read the lock file now, so that a broken one prevents opening."""
    if settings.lock is None:
        return None
    lock = Lock(settings.lock.absolute())
    lock.sources  # noqa: B018 - raises if the file is broken
    return lock


def _make_router(
    inputs: ToolboxInputs, store: Store, authorizer: Authorizer, redactor: Redactor, protected: ProtectedFiles
) -> ToolRouter:
    """Create the router from the settings."""
    settings = inputs.settings
    return ToolRouter(
        inputs.registry,
        store=store,
        policy=policy_of(settings),
        authorizer=authorizer,
        redactor=redactor,
        sinks=inputs.sinks,
        on_pending=inputs.on_pending,
        context_defaults=_context_defaults(inputs, protected),
        timeout_s=settings.tools.timeout_s,
        inline_bytes=settings.limits.inline_bytes,
        pending_ttl_s=settings.limits.pending_ttl,
        retry_ratio=settings.limits.retry_budget,
    )


def _open_store(settings: Settings) -> Store:
    if settings.data_dir is None:
        return MemoryStore(max_events=settings.limits.event_queue)
    from toolpost.stores.sqlite import open_sqlite_store  # noqa: PLC0415 - what is in memory needs no database

    sealer = _sealer(settings, settings.data_dir)
    return open_sqlite_store(settings.data_dir, sealer=sealer, queue_limit=settings.limits.event_queue)


def _sealer(settings: Settings, home: Path) -> Sealer:
    from toolpost.auth.keys import KeySealer, keys_from  # noqa: PLC0415 - as above

    return KeySealer(keys_from(settings.accounts.key, folder=home))


def policy_of(settings: Settings) -> Policy:
    """Return the policy of the settings."""
    approvals = settings.approvals.to_approvals()
    if isinstance(settings.policy, str):
        return Policy(settings.policy, approvals=approvals)
    return Policy("standard", [rule.to_rule() for rule in settings.policy], approvals=approvals)


def _context_defaults(inputs: ToolboxInputs, protected: ProtectedFiles) -> ContextDefaults:
    paths = inputs.settings.tools.allowed_paths
    # Resolved now: the working folder of the program may change later.
    home = Path.cwd() if inputs.config is None else inputs.config.absolute().parent
    allowed = None if paths is None else tuple(map(os.path.abspath, paths))
    folders = AllowedPaths(allowed, tenants=str(home / TENANTS_FOLDER))
    return ContextDefaults(folders, inputs.settings.data_dir, protected.paths)


class WebhooksOnDemand:
    """Send events to the webhooks of the settings."""

    def __init__(self, store: Store, emitter: EventEmitter, network: NetworkPolicy) -> None:
        self._store = store
        self._emitter = emitter
        self._network = network
        self._open: EventWebhooks | None = None

    async def apply(self, settings: Settings, pending: PendingActions) -> None:
        """Send to the webhooks that are enabled from now on, and to no others."""
        webhooks = [webhook.to_webhook() for webhook in settings.webhooks if webhook.enabled]
        if self._open is None:
            if not webhooks:
                return
            from toolpost.runtime.event_webhooks import EventWebhooks  # noqa: PLC0415 - few need an HTTP client at once

            self._open = EventWebhooks(self._store, pending, self._network)
            self._emitter.add_sink(self._open)
        await self._open.apply(webhooks)

    async def states(self) -> list[dict[str, Any]]:
        """Return how each webhook stands, by name."""
        return [] if self._open is None else await self._open.states()

    @property
    def problems(self) -> list[str]:
        """What fails, a sentence for each webhook."""
        return [] if self._open is None else self._open.problems

    async def close(self) -> None:
        """Send what is left, for a moment."""
        if self._open is not None:
            await self._open.close()
