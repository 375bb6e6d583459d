"""The secrets of a deployment in environment variables: its encryption key, its token, and those of object storage.

No source, tool or child process receives them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from toolpost.configuration.literal_secrets import MIN_SECRET
from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.config import ExternalToolConfig


def deployment_secrets(settings: Settings, environ: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the values of the variables, and each key of a list of keys, for redaction."""
    variables = os.environ if environ is None else environ
    whole = {variables.get(name, "").strip() for name in settings.storage_variables()}
    values = [variables.get(name, "") for name in settings.secret_variables()]
    keys = {part.strip() for value in values if value.strip() not in whole for part in (value, *value.split(","))}
    return frozenset(secret for secret in whole | keys if len(secret) >= MIN_SECRET)


def check_source(config: ExternalToolConfig, secrets: Collection[str]) -> None:
    """Raise ConfigError if a source, with its variables substituted, would receive one of these secrets."""
    for place, text in _texts(config):
        if any(secret in text for secret in secrets):
            raise ConfigError(
                f"source {config.name!r}: {place} contains the encryption key or the operator's token, or a credential "
                "of `artifacts`, which no source receives; remove the variable, and give the source another secret",
                code="secret_of_the_deployment",
            )


def _texts(config: ExternalToolConfig) -> Iterator[tuple[str, str]]:
    yield "connection", config.connection
    yield from ((f"env.{name}", value) for name, value in config.env.items())
    yield from ((f"auth_config.{name}", str(value)) for name, value in config.auth_config.items())
