"""Command lines as a source of tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.transports.base import Transport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolpost.contracts.config import ExternalToolConfig


class CliTransport(Transport):
    """Programs that are run without a shell."""

    name = "cli"
    source_class = "toolpost.sources.cli.source:CliSource"
    forms = ("command",)

    def files(self, config: ExternalToolConfig) -> Iterator[str]:
        """Return the manual that describes the commands."""
        if config.cli.manual is not None:
            yield config.cli.manual
