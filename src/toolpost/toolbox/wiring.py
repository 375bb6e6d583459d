"""Create and connect the parts of a Toolbox: store, router, pending actions, recovery, sources, webhooks, built-ins."""

from __future__ import annotations

import os
from dataclasses import dataclass
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
from toolpost.configuration.deployment_secrets import deployment_secrets
from toolpost.configuration.lint import lint_settings
from toolpost.configuration.literal_secrets import literal_secrets
from toolpost.configuration.protected_files import ProtectedFiles
from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.source_kinds import AuthType
from toolpost.policy.log_redaction import redacted_logs
from toolpost.policy.paths import AllowedPaths, is_template
from toolpost.policy.redaction import Redactor
from toolpost.policy.rules import Policy
from toolpost.runtime.jobs import JobRunner
from toolpost.runtime.pending import PendingActions
from toolpost.runtime.recovery import Recovery
from toolpost.runtime.retention import StoredData
from toolpost.runtime.router import CallLimits, ToolRouter
from toolpost.runtime.tool_context import ContextDefaults
from toolpost.sources.base import Services
from toolpost.sources.registry import load_plugins
from toolpost.stores.agent_records.files import AgentFiles
from toolpost.stores.agent_records.folders import TASK_FOLDER
from toolpost.stores.encryption import CacheFolder
from toolpost.stores.registry import StoreOptions, database_of, find_backend
from toolpost.toolbox.engines import make_engine, make_runner
from toolpost.toolbox.local_tools import (
    WebProviders,
    builtin_parts,
    chosen_builtins,
    network_policy,
    register_local_tools,
)
from toolpost.toolbox.on_demand import AccountsOnDemand, WebhooksOnDemand
from toolpost.toolbox.source_factory import SourceFactory
from toolpost.toolbox.source_index import SourceIndex
from toolpost.toolbox.source_manager import SourceManager
from toolpost.toolbox.source_tools import Pinning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AsyncExitStack

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.chat import ChatModel
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.jobs import Engine
    from toolpost.contracts.questions import OnPending
    from toolpost.contracts.sources import CredentialProvider
    from toolpost.contracts.spec import Tool
    from toolpost.contracts.storage import Cipher, EventSink, Store
    from toolpost.toolbox.accounts import AccountManager
    from toolpost.wire.network import NetworkPolicy


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
    store: Store | None = None
    resolved: bool = False
    clock: Clock = SYSTEM_CLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolboxParts:
    """The parts of an open Toolbox; `skipped_tools` says which tools of plug-ins were skipped, and why."""

    registry: ToolRegistry
    store: Store
    router: ToolRouter
    pending: PendingActions
    recovery: Recovery
    engine: Engine
    jobs: JobRunner
    redactor: Redactor
    sources: SourceManager
    accounts: AccountsOnDemand
    webhooks: WebhooksOnDemand
    providers: WebProviders
    skipped_tools: Sequence[str]

    def problems(self, settings: Settings) -> list[str]:
        """Return the skipped tools and sources, and findings in these settings."""
        index = self.sources.index
        findings = lint_settings(settings, self.registry, index.listings, self.redactor.text)
        found = [finding.text for finding in findings]
        return [*self.skipped_tools, *found, *index.left_out, *index.problems, *self.webhooks.problems]


async def open_parts(inputs: ToolboxInputs, closing: AsyncExitStack) -> ToolboxParts:
    """Open the store, create the parts and fill the catalog; `closing` closes everything again."""
    settings, registry, clock = inputs.settings, inputs.registry, inputs.clock
    imported = [tool.spec.name for tool in inputs.tools if is_builtin(tool)]
    own_tools = [tool for tool in inputs.tools if not is_builtin(tool)]
    plugins = load_plugins()
    network = network_policy(settings)
    authorizer = Authorizer(inputs.credentials)
    withheld = deployment_secrets(settings)
    secrets = inputs.secrets.union(literal_secrets(settings), withheld)
    redactor = Redactor(secrets)
    protected = ProtectedFiles(settings, config=inputs.config, tools=own_tools)
    index = SourceIndex(redactor)

    store = inputs.store or await _open_store(settings, clock, closing)  # a store that was given is closed by its owner
    agents = None if settings.data_dir is None else AgentFiles(settings.data_dir)
    has_objects = settings.artifacts is not None
    data = StoredData(store, agents, settings.retention.to_retention(), clock, has_objects=has_objects)
    closing.enter_context(redacted_logs(redactor))
    router = ToolRouter.create(
        registry,
        store=store,
        policy=policy_of(settings),
        authorizer=authorizer,
        redactor=redactor,
        sinks=inputs.sinks,
        on_pending=inputs.on_pending,
        context_defaults=_context_defaults(inputs, protected),
        limits=CallLimits(
            timeout_s=settings.tools.timeout_s,
            inline_bytes=settings.limits.inline_bytes,
            pending_ttl_s=settings.limits.pending_ttl,
            retry_ratio=settings.limits.retry_budget,
        ),
        sources=index,
        trace_arguments=settings.telemetry.arguments,
        clock=clock,
    )
    emitter, background = router.emitter, router.background
    pending = PendingActions(
        router, registry, store=store, emitter=emitter, redactor=redactor, background=background, clock=clock
    )
    webhooks = WebhooksOnDemand(store, network, pending)
    closing.push_async_callback(webhooks.close)

    def make_accounts() -> AccountManager:
        from toolpost.toolbox.accounts import AccountManager  # noqa: PLC0415 - OAuth imports slowly, and few need it

        return AccountManager(
            settings.accounts,
            network,
            store=store,
            data=data,
            emitter=emitter,
            redactor=redactor,
            background=background,
            pending=pending,
            find_source=index.source,
        )

    accounts = AccountsOnDemand(make_accounts)
    closing.push_async_callback(accounts.close)
    if any(source.auth_type is AuthType.OAUTH2_USER for source in settings.all_sources()):
        accounts.open()

    factory = SourceFactory(
        redactor=redactor,
        emit=emitter.emit_source,
        services=_services(inputs, network, store),
        transports=plugins.transports,
        resolve=not inputs.resolved,
        account_credentials=accounts.credentials_for,
        pinning=_pinning(settings, router),
        secrets=secrets,
        withheld=withheld,
    )
    sources = SourceManager(
        registry,
        authorizer,
        factory,
        index=index,
        overrides=settings.overrides,
        finish_calls=router.inflight.finish,
        protected=protected,
    )
    closing.push_async_callback(sources.close)
    recovery = Recovery(
        router,
        pending,
        data=data,
        also=accounts.resume_waiting,
        absent=inputs.absent,
    )

    task_folder = partial(router.context_defaults.folder, TASK_FOLDER)
    builtin = builtin_parts(settings, store=lambda: store, network=lambda: network, task_folder=task_folder)
    builtins = Builtins(builtin)
    closing.push_async_callback(builtins.close)
    chosen = {tool.spec.name: tool for names in (chosen_builtins(settings), imported) for tool in builtins.tools(names)}
    skipped = register_local_tools(registry, settings, [*chosen.values(), *own_tools], plugins)
    await sources.load_all(settings.all_sources(), wait_s=settings.startup_wait_s)
    registry.define_collections({**COLLECTIONS, **settings.collections})
    exchange = sources.exchange
    registry.subscribe(lambda changes: None if exchange.joining else emitter.emit_catalog_changes(changes))

    closing.push_async_callback(router.close)
    closing.push_async_callback(recovery.stop)
    closing.push_async_callback(router.guards.feed.stop)
    await router.guards.feed.start()
    await webhooks.apply(settings)
    await recovery.start()
    router.inflight.bind()
    return ToolboxParts(
        registry=registry,
        store=store,
        router=router,
        pending=pending,
        recovery=recovery,
        engine=make_engine(settings, store, clock),
        jobs=make_runner(settings, router, pending, recovery),
        redactor=redactor,
        sources=sources,
        accounts=accounts,
        webhooks=webhooks,
        providers=WebProviders(builtins, builtin, registry),
        skipped_tools=skipped,
    )


def _services(inputs: ToolboxInputs, network: NetworkPolicy, store: Store) -> Services:
    """Return the services that all sources share."""
    settings = inputs.settings
    paths, home = settings.tools.allowed_paths, settings.data_dir
    return Services(
        roots=None if paths is None else tuple(str(path) for path in paths if not is_template(path)),
        chat_model=inputs.chat_model,
        servers=inputs.servers,
        network=network,
        documents=None if home is None else CacheFolder(home / CACHE_DIR, _cipher(settings, home)),
        listings=None if home is None else CacheFolder(home / LISTINGS_DIR, _cipher(settings, home)),
        artifacts=store.artifacts,
    )


def _pinning(settings: Settings, router: ToolRouter) -> Pinning:
    """Return the accepted definitions. The lock file is read now: an invalid one prevents opening."""
    home = settings.data_dir
    lock = None if settings.lock is None else Lock(settings.lock.absolute())
    if lock is not None:
        lock.sources  # noqa: B018 - raises if the file is invalid
    return Pinning(lock, None if home is None else home / DEFINITIONS_DIR, lambda: router.policy.blocks_changes)


def seen_definitions(data_dir: Path, config: ExternalToolConfig) -> SeenDefinitions:
    """Return the definitions of a source's tools as a Toolbox with this data folder has first seen them."""
    return SeenDefinitions.of(data_dir / DEFINITIONS_DIR, config)


async def _open_store(settings: Settings, clock: Clock, closing: AsyncExitStack) -> Store:
    options = store_options(settings)._replace(clock=clock)
    store = await find_backend(options.database).open(options)
    closing.push_async_callback(store.close)
    return store


def store_options(settings: Settings) -> StoreOptions:
    """Return the settings of the store."""
    return StoreOptions(
        database_of(settings.database, settings.data_dir),
        settings.data_dir,
        partial(_cipher, settings),
        settings.limits.event_queue,
        artifacts=settings.artifacts,
    )


def _cipher(settings: Settings, home: Path) -> Cipher:
    from toolpost.auth.keys import KeyCipher, keys_from  # noqa: PLC0415 - what is in memory needs no key

    return KeyCipher(keys_from(settings.accounts.key, folder=home))


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
