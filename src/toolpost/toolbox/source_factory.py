"""Build a source from its configuration: variables, secrets, pins, credential, services."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from toolpost.auth.credentials import (
    SourceAccess,
    discovery_credential,
    named_secrets,
    secrets_of,
    static_credential,
    substituted,
    with_environment,
)
from toolpost.auth.env_files import read_env_file
from toolpost.catalog.seen_definitions import SeenDefinitions
from toolpost.configuration.deployment_secrets import check_source
from toolpost.configuration.literal_secrets import MIN_SECRET
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.events import EventCode
from toolpost.contracts.source_kinds import AuthType
from toolpost.contracts.sources import SourceTraits
from toolpost.policy.redaction import Redactor
from toolpost.sources.base import Services
from toolpost.sources.registry import find_transport, make_source
from toolpost.toolbox.source_tools import Pinning, SourcePins

if TYPE_CHECKING:
    from toolpost.contracts.calls import Credential
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.manuals import DescribedCommands
    from toolpost.contracts.sources import CredentialProvider, ToolSource
    from toolpost.sources.base import Transport
    from toolpost.toolbox.source_index import ManagedSource

ProviderFactory: TypeAlias = "Callable[[ExternalToolConfig], CredentialProvider]"
Emit = Callable[[str, EventCode, Mapping[str, Any]], None]


class SourceFactory:
    """Build the sources of one Toolbox; nothing is connected here.

    `resolve` substitutes `${VAR}` in configurations, which loading a file has already done. `account_credentials` makes
    the provider of users' own credentials for a source. Tools that differ from `pinning` are blocked or reported.
    `secrets` are those of the whole configuration; a source with one of `withheld` is refused.
    """

    def __init__(
        self,
        *,
        redactor: Redactor | None = None,
        emit: Emit = lambda _name, _code, _facts: None,
        services: Services | None = None,
        transports: Mapping[str, Transport] | None = None,
        resolve: bool = True,
        account_credentials: ProviderFactory | None = None,
        pinning: Pinning | None = None,
        secrets: frozenset[str] = frozenset(),
        withheld: frozenset[str] = frozenset(),
    ) -> None:
        self.redactor = redactor or Redactor()
        self.emit = emit
        self._services = services or Services()
        self._transports = transports
        self._resolve = resolve
        self._account_credentials = account_credentials
        self._pinning = pinning or Pinning()
        self._secrets = secrets
        self._withheld = withheld

    def add_secrets(self, secrets: frozenset[str]) -> None:
        """Redact the secrets of other settings, too."""
        self._secrets |= secrets
        self.redactor.learn(secrets)

    def traits_of(self, config: ExternalToolConfig) -> SourceTraits:
        """Return the facts about a source; the defaults if its transport cannot be loaded, which `build` reports."""
        try:
            return find_transport(config.transport, self._transports).traits(config)
        except ConfigError:
            return SourceTraits()

    async def build(self, managed: ManagedSource) -> ToolSource:
        """Build a source; its accounts can be connected even if its module cannot be imported."""
        if managed.config.unusable:
            raise ConfigError(managed.config.unusable)
        from toolpost.connecting.presets import with_token_variable  # noqa: PLC0415 - only with sources, and slow

        # Data never names a variable of this process: its value would be sent to the address beside it.
        filled_config = managed.config if managed.from_data else with_token_variable(managed.config)
        resolve = not managed.from_data and (self._resolve or not managed.declared)
        config = self._with_env_file(with_environment(filled_config) if resolve else filled_config)
        check_source(config, self._withheld)
        managed.config = managed.tools.config = config
        filled_in = substituted(filled_config, config, os.environ)
        self.redactor.learn(secrets_of(config) | filled_in)
        managed.access.secrets = named_secrets(config)
        managed.tools.pins = self._pins_of(managed, config, self._secrets | filled_in)
        if config.auth_type is AuthType.OAUTH2_USER and self._account_credentials is not None:
            await _import_module("toolpost.toolbox.accounts")
        credential = self._credential(config, managed.access)
        await _import_module(find_transport(config.transport, self._transports).source_class.partition(":")[0])
        return self._make_source(config, credential, from_data=managed.from_data)

    def _with_env_file(self, config: ExternalToolConfig) -> ExternalToolConfig:
        """Merge the variables of `env_file` below `env`; their values are secrets."""
        if config.env_file is None:
            return config
        try:
            variables = read_env_file(Path(config.env_file))
        except FileNotFoundError:
            raise ConfigError(f"env_file {config.env_file!r} does not exist") from None
        self.redactor.learn({value for value in variables.values() if len(value) >= MIN_SECRET})
        return config.model_copy(update={"env": {**variables, **config.env}})

    def _pins_of(
        self, managed: ManagedSource, config: ExternalToolConfig, secrets: frozenset[str]
    ) -> SourcePins | None:
        """Return the definitions that the tools are compared with; those of the operator's own code are not stored."""
        is_recorded = not managed.tools.traits.is_own_code and not managed.from_data
        lock, folder, blocks = self._pinning
        seen = SeenDefinitions.of(folder, config) if folder is not None and is_recorded else None
        if lock is None and seen is None:
            return None
        loop = asyncio.get_running_loop()

        def report(name: str, facts: Mapping[str, Any]) -> None:  # from the thread that compares a listing
            loop.call_soon_threadsafe(partial(self.emit, name, EventCode.DEFINITION_CHANGED, facts))

        return SourcePins(lock, config, secrets, seen=seen, blocks=blocks, report=report)

    def _credential(self, config: ExternalToolConfig, access: SourceAccess) -> Credential:
        """Return the credential that lists the tools; calls of users with their own accounts use those."""
        if config.auth_type is AuthType.OAUTH2_USER:
            if self._account_credentials is not None and access.provider is None:
                access.provider = self._account_credentials(config)
            return discovery_credential(config)
        access.shared = static_credential(config)
        return access.shared

    def _make_source(self, config: ExternalToolConfig, credential: Credential, *, from_data: bool) -> ToolSource:
        """Create a source with its services; it may create others of its kind, which share its credential."""
        services = replace(
            self._services,
            credential=credential,
            network=replace(self._services.network, trace_context=config.trace_context, from_data=from_data),
            emit=partial(self.emit, config.name),
            make=partial(self._make_source, credential=credential, from_data=from_data),
            describe_commands=self._describe_commands,
        )
        return make_source(config, services, self._transports)

    async def _describe_commands(self, config: ExternalToolConfig) -> DescribedCommands:
        """Read the commands that a manual describes. Sources do not import each other, so this is injected."""
        from toolpost.sources.utcp.cli_export import export_cli_commands  # noqa: PLC0415 - few need it

        return await export_cli_commands(config, network=self._services.network)


async def _import_module(module: str) -> None:
    """Import a module in a thread: it may take a second, which would block the event loop."""
    if module and module not in sys.modules:
        with suppress(ModuleNotFoundError):  # an extra is missing, which `make_source` reports
            await asyncio.to_thread(import_module, module)
