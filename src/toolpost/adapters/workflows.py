"""Workflow to Tool: a workflow as a tool value, with its definition packed in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from toolpost.adapters.stored_tools import ToolPort, WorkflowTool

if TYPE_CHECKING:
    from toolpost.sources.workflow.definition import Port, Workflow


def workflow_tool(workflow: Workflow | str | Path) -> WorkflowTool:
    """Return the tool value of a workflow or of its file; raise a ConfigError for an invalid file."""
    from toolpost.sources.workflow.definition import Workflow  # noqa: PLC0415 - an extra

    loaded = workflow if isinstance(workflow, Workflow) else Workflow.read(workflow)
    data = loaded.data
    outputs = _ports(data.ports.outputs)
    message = len(outputs) if data.message is not None else -1
    if data.message is not None:
        outputs.append(ToolPort("message", type="message"))
    return WorkflowTool(
        name=loaded.name,
        description=data.description,
        parameter_schema=loaded.input_schema,
        _filestore_keys=loaded.pack(),
        input_ports=_ports(data.ports.inputs),
        output_ports=outputs,
        message_output_port_index=message,
    )


def _ports(ports: Mapping[str, Port]) -> list[ToolPort]:
    return [ToolPort(name, port.description, "table", dict(port.columns)) for name, port in ports.items()]
