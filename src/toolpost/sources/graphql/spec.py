"""An operation as a tool's record: queries read, mutations write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.catalog.names import canonical_name
from toolpost.contracts.spec import SafetyProfile, ToolCategory, ToolSpec

if TYPE_CHECKING:
    from toolpost.sources.graphql.operations import Operation

_DESTROYS = ("delete", "remove")


def tool_spec(operation: Operation, *, source: str) -> ToolSpec:
    """The record of the tool that sends an operation."""
    reads = operation.kind == "query"
    destructive = None if not operation.name.lower().startswith(_DESTROYS) else True
    return ToolSpec(
        name=canonical_name(source, operation.tool_name),
        description=operation.description,
        category=ToolCategory.NETWORK,
        input_schema=operation.input_schema,
        output_schema=operation.output_schema,
        side_effects="read" if reads else "external",
        replay="idempotent" if reads else "unsafe",
        safety=SafetyProfile(network=True, destructive=False if reads else destructive, open_world=True),
        tags=("graphql", source),
        source=source,
        deprecated=operation.deprecated,
        extra={"source": "graphql", "namespace": source, "remote_name": operation.name, "operation": operation.kind},
    )
