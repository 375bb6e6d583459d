"""Parse UTCP manuals, and name their tools."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from toolpost.catalog.names import canonical_name
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.records import represent
from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import SCHEMA_MAPS, as_object, is_array, is_object

# Manuals that are fetched by a message: their tools use the same connection unless they say otherwise.
_TEMPLATE_INHERITING_KINDS = frozenset({"tcp", "udp", "websocket"})
_HASH_CHARS = 6
_NOT_IN_NAME = re.compile(r"\W")
_VALUE_KEYWORDS = frozenset({"enum", "examples", "default", "const"})


class Manual(Struct, frozen=True, kw_only=True):
    """Tools of a manual and where it came from.

    `remote` is the URL of a manual from another machine, `operator_url` the URL that the operator wrote for it.
    `allowed` are the kinds of call templates that the operator allows, None for the default of `allows`.
    """

    name: str
    kind: str
    tools: tuple[ManualTool, ...] = ()
    problems: tuple[str, ...] = ()
    remote: str | None = None
    operator_url: str = ""
    folder: Path | None = None
    allowed: frozenset[str] | None = None
    variables: tuple[Mapping[str, Any], ...] = ()

    def __repr__(self) -> str:
        return represent(self, without=("variables",))

    def allows(self, kind: str) -> bool:
        """Return whether tools may be of this kind; by default, a remote manual may only use its own kind."""
        if self.allowed:
            return kind in self.allowed
        return self.remote is None or kind == self.kind


class ManualTool(Struct, frozen=True, kw_only=True):
    """A tool as its manual describes it, with the variables of `template` unfilled.

    `name` is its name in the source: the last part of `full_name`, or more of it where two tools share that part.
    """

    full_name: str
    name: str = ""
    description: str = ""
    inputs: JsonSchema = field(default_factory=lambda: {"type": "object"})
    outputs: JsonSchema | None = None
    tags: tuple[str, ...] = ()
    template: Mapping[str, Any]

    def __repr__(self) -> str:
        return represent(self, without=("template",))

    @property
    def kind(self) -> str:
        return str(self.template.get("call_template_type"))


def parse_manual(data: Mapping[str, Any], manual: Manual, template: Mapping[str, Any] | None = None) -> Manual:
    """Return the manual with its tools; a broken tool is skipped and reported.

    `template` is the call template of the manual itself.
    """
    tools: dict[str, ManualTool] = {}
    problems: list[str] = []
    default = template if manual.kind in _TEMPLATE_INHERITING_KINDS else None
    for number, item in enumerate(data["tools"]):
        try:
            tool = _parse_tool(item, manual.name, number, default)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if tool.full_name in tools:
            problems.append(f"tool {tool.full_name!r} exists twice; the second is skipped")
        tools.setdefault(tool.full_name, tool)
    return replace(manual, tools=_assign_names(tools.values(), manual.name), problems=tuple(problems))


def _assign_names(tools: Iterable[ManualTool], manual: str) -> tuple[ManualTool, ...]:
    """Name the tools uniquely: by the last part of the name, else by the full name, else with a hash."""
    listed = list(tools)
    names = [tool.full_name.rpartition(".")[2] for tool in listed]
    for qualify in (_full_name, _with_digest):
        counts = Counter(map(_catalog_name, names))
        pairs = zip(listed, names, strict=True)
        names = [name if counts[_catalog_name(name)] == 1 else qualify(tool.full_name, manual) for tool, name in pairs]
    return tuple(replace(tool, name=name) for tool, name in zip(listed, names, strict=True))


def _full_name(full_name: str, manual: str) -> str:
    return full_name.removeprefix(f"{manual}.").replace(".", "_")


def _with_digest(full_name: str, manual: str) -> str:
    digest = hashlib.sha256(full_name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{_full_name(full_name, manual)}_{digest}"


def _catalog_name(name: str) -> str:
    """Return the form of a name by which the catalog compares it."""
    return canonical_name("", name)


def _parse_tool(item: Any, manual: str, number: int, default: Mapping[str, Any] | None) -> ManualTool:
    if not is_object(item) or not isinstance(item.get("name"), str) or not item["name"].strip("."):
        raise ConfigError(f"tool number {number + 1} is skipped: it has no name")
    name = item["name"]
    template = item.get("tool_call_template") or default
    if not is_object(template) or not isinstance(template.get("call_template_type"), str):
        raise ConfigError(f"tool {name!r} is skipped: it has no tool_call_template with a call_template_type")
    inputs, outputs = item.get("inputs"), item.get("outputs")
    tags = item.get("tags")
    schema = _drop_nulls(as_object(inputs))
    return ManualTool(
        full_name=name if name.startswith(f"{manual}.") else f"{manual}.{name}",
        description=str(item.get("description") or ""),
        inputs=schema if "type" in schema else {"type": "object", **schema},
        outputs=_drop_nulls(outputs) or None if is_object(outputs) else None,
        tags=tuple(map(str, tags)) if is_array(tags) else (),
        template=template,
    )


def _drop_nulls(schema: Mapping[str, Any]) -> JsonSchema:
    """Drop the keywords of a schema that are null, which programs write for absent ones."""
    return {key: _drop_nested_nulls(key, value) for key, value in schema.items() if value is not None}


def _drop_nested_nulls(key: str, value: Any) -> Any:
    if key in _VALUE_KEYWORDS:
        return value
    if is_object(value):
        if key in SCHEMA_MAPS:
            return {name: _drop_nulls(part) if is_object(part) else part for name, part in value.items()}
        return _drop_nulls(value)
    if is_array(value):
        return [_drop_nulls(part) if is_object(part) else part for part in value]
    return value


def manual_name(name: str) -> str:
    """Normalize the name of a manual, which prefixes its tools and variables."""
    return _NOT_IN_NAME.sub("_", name)


def qualify_duplicates(manuals: Sequence[Manual]) -> list[Manual]:
    """Prefix the names of tools that several manuals of a source share with the manual's name."""
    # All of them, so that a manual that is added later does not take over a name in use.
    for qualify in (_with_manual, _with_manual_and_digest):
        counts = Counter(_catalog_name(tool.name) for manual in manuals for tool in manual.tools)
        duplicates = {name for name, count in counts.items() if count > 1}
        manuals = [
            replace(
                manual,
                tools=tuple(
                    qualify(tool, manual) if _catalog_name(tool.name) in duplicates else tool for tool in manual.tools
                ),
            )
            for manual in manuals
        ]
    return [*manuals]


def _with_manual(tool: ManualTool, manual: Manual) -> ManualTool:
    return replace(tool, name=f"{manual.name}_{tool.name}")


def _with_manual_and_digest(tool: ManualTool, manual: Manual) -> ManualTool:
    return replace(tool, name=f"{manual.name}_{_with_digest(tool.full_name, manual.name)}")
