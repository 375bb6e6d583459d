"""Command lines as a source of tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.transports.base import Transport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.sources import ToolSource
    from toolpost.transports.base import Services


class CliTransport(Transport):
    """Programs that are run without a shell."""

    name = "cli"
    module = "toolpost.sources.cli.source"
    forms = ("command",)

    def make(self, config: ExternalToolConfig, services: Services) -> ToolSource:
        """Build the source of one command line."""
        from toolpost.sources.cli.source import CliSource  # noqa: PLC0415 - few need it

        return CliSource(config, services)

    def files(self, config: ExternalToolConfig) -> Iterator[str]:
        """Return the manual that describes the commands."""
        if config.cli.manual is not None:
            yield config.cli.manual
