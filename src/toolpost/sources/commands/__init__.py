"""Command lines as a source of tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.sources import SourceTraits
from toolpost.sources.base import Transport
from toolpost.sources.commands.options import CliOptions
from toolpost.wire.targets import is_http_url


class CliTransport(Transport):
    """Programs that are run without a shell."""

    name = "cli"
    options = CliOptions
    source_class = "toolpost.sources.commands.source:CliSource"
    forms = ("command",)

    def traits(self, config: ExternalToolConfig) -> SourceTraits:
        """Return that the configuration declares the commands, unless a manual describes them."""
        return SourceTraits(declares_schemas="manual" not in config.options)

    def starts_program(self, config: ExternalToolConfig) -> bool:
        return not is_http_url(config.connection)

    def files(self, config: ExternalToolConfig) -> Iterator[str]:
        if (manual := config.read_options(CliOptions).manual) is not None:
            yield manual

    def command_words(self, config: ExternalToolConfig) -> list[str]:
        return [word for tool in config.read_options(CliOptions).tools.values() for word in tool.args]

    def with_absolute_paths(self, config: ExternalToolConfig, absolute: Callable[[str], str]) -> ExternalToolConfig:
        """Resolve the manual, and run commands in the configuration's folder unless a manual describes them.

        Commands of a manual run in the folder of the manual.
        """
        manual = config.read_options(CliOptions).manual
        if manual is None:
            return config if config.cwd is not None else config.model_copy(update={"cwd": absolute(".")})
        if "://" in manual:
            return config
        file = absolute(manual)
        connection = file if config.connection == manual else config.connection
        return config.with_options(manual=file).model_copy(update={"connection": connection})
