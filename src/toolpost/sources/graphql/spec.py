"""An operation as a tool's record: queries read, mutations write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from toolpost.catalog.names import canonical_name
from toolpost.contracts.spec import SafetyProfile, ToolCategory, ToolSpec, ToolTarget

if TYPE_CHECKING:
    from toolpost.sources.graphql.operations import Operation

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_DESTROYS = frozenset({"delete", "destroy", "remove"})


def tool_spec(operation: Operation, *, source: str, url: str) -> ToolSpec:
    """The record of the tool that sends an operation."""
    reads = operation.kind == "query"
    destroys = not _DESTROYS.isdisjoint(map(str.lower, _WORD.findall(operation.name)))
    return ToolSpec(
        name=canonical_name(source, operation.tool_name),
        description=operation.description,
        category=ToolCategory.NETWORK,
        input_schema=operation.input_schema,
        model_schema=operation.model_schema,
        output_schema=operation.output_schema,
        side_effects="read" if reads else "external",
        replay="idempotent" if reads else "unsafe",
        safety=SafetyProfile(network=True, destructive=False if reads else destroys or None, open_world=True),
        tags=("graphql", source),
        source=source,
        origin=source,
        deprecated=operation.deprecated,
        extra={"source": "graphql", "namespace": source, "remote_name": operation.name, "operation": operation.kind},
        target=ToolTarget("graphql", f"{operation.kind} {operation.name} at {url}", lambda: operation.query),
    )
