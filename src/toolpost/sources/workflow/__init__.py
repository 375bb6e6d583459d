"""Workflows as tools: YAML files of steps that call other tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from toolpost.contracts.sources import SourceTraits
from toolpost.sources.base import Detection, ProbeResponse, Transport
from toolpost.sources.workflow.options import WorkflowOptions

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig


class WorkflowTransport(Transport):
    """Workflows of a YAML file, or of all YAML files of a folder."""

    name = "workflow"
    options = WorkflowOptions
    source_class = "toolpost.sources.workflow.source:WorkflowSource"
    requires = ("jmespath", "workflow")
    forms = ("file",)

    def traits(self, config: ExternalToolConfig) -> SourceTraits:
        del config
        return SourceTraits(calls_tools=True)

    def detect(self, response: ProbeResponse) -> Detection | None:
        if not response.url.endswith((".yaml", ".yml")) or response.headers:
            return None
        text = b"\n" + response.body
        is_one = b"\nname:" in text and b"\nsteps:" in text and b"tool:" in text
        return Detection("a workflow", "it has steps that call tools") if is_one else None

    def files(self, config: ExternalToolConfig) -> Iterable[str]:
        return [config.connection]
