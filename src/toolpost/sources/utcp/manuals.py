"""A manual: its tools and how each is called, read from a document; what cannot be used is told tool by tool."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from toolpost.catalog.names import canonical_name
from toolpost.contracts.errors import ConfigError
from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from toolpost.contracts.spec import JsonSchema

LOCAL_KINDS = frozenset({"text", "file", "cli"})
# Kinds that are discovered by a question and answered over the same way have tools that go that way, too.
_LEND_THEIR_TEMPLATE = frozenset({"tcp", "udp", "websocket"})
_HASH_CHARS = 6
_NOT_IN_NAME = re.compile(r"\W")
_SCHEMA_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"enum", "examples", "default", "const"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualTool:
    """One tool as its manual describes it; `template` is not filled in yet.

    `name` is what it is filtered and called by here: the last part of its name, or more where two would be the same.
    """

    full_name: str
    name: str = ""
    description: str = ""
    inputs: JsonSchema = field(default_factory=lambda: {"type": "object"})
    outputs: JsonSchema | None = None
    tags: tuple[str, ...] = ()
    template: Mapping[str, Any] = field(repr=False)

    @property
    def kind(self) -> str:
        """The kind of its call template."""
        return str(self.template.get("call_template_type"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manual:
    """Tools with where they came from.

    `remote` is the address of a manual that is not this machine's own, `written` the one that an operator gave for
    it; `allowed` are the kinds of call templates
    that an operator lets it use, None for those that it may use anyway; `variables` are the operator's.
    """

    name: str
    kind: str
    tools: tuple[ManualTool, ...]
    problems: tuple[str, ...] = ()
    remote: str | None = None
    written: str = ""
    folder: Path | None = None
    allowed: frozenset[str] | None = None
    variables: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    def allows(self, kind: str) -> bool:
        """Whether its tools may be of this kind: those of a manual from elsewhere only of its own."""
        if self.allowed:
            return kind in self.allowed
        return self.remote is None or kind == self.kind


def manual_name(written: str) -> str:
    """The name under which a manual's tools and variables are found."""
    return _NOT_IN_NAME.sub("_", written)


def manual_of(
    data: Mapping[str, Any],
    *,
    name: str,
    kind: str,
    remote: str | None = None,
    written: str = "",
    folder: Path | None = None,
    allowed: frozenset[str] | None = None,
    template: Mapping[str, Any] | None = None,
    variables: tuple[Mapping[str, Any], ...] = (),
) -> Manual:
    """Read a manual; a tool that is broken is left out and told of. `template` is how the manual itself was got."""
    tools: dict[str, ManualTool] = {}
    problems: list[str] = []
    lent = template if kind in _LEND_THEIR_TEMPLATE else None
    for number, item in enumerate(data["tools"]):
        try:
            tool = _tool(item, name, number, lent)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if tool.full_name in tools:
            problems.append(f"tool {tool.full_name!r} is there twice; the second is left out")
        tools.setdefault(tool.full_name, tool)
    return Manual(
        name=name,
        kind=kind,
        tools=_named(tools.values(), name),
        problems=tuple(problems),
        remote=remote,
        written=written,
        folder=folder,
        allowed=allowed,
        variables=variables,
    )


def _named(tools: Iterable[ManualTool], manual: str) -> tuple[ManualTool, ...]:
    """The tools with the names that they are called by here; two that would still share one keep apart by a hash."""
    every = list(tools)
    names = [tool.full_name.rpartition(".")[2] for tool in every]
    for longer in (_whole, _with_digest):
        times = Counter(map(_key, names))
        found = zip(every, names, strict=True)
        names = [name if times[_key(name)] == 1 else longer(tool.full_name, manual) for tool, name in found]
    return tuple(replace(tool, name=name) for tool, name in zip(every, names, strict=True))


def _whole(full_name: str, manual: str) -> str:
    return full_name.removeprefix(f"{manual}.").replace(".", "_")


def _with_digest(full_name: str, manual: str) -> str:
    digest = hashlib.sha256(full_name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{_whole(full_name, manual)}_{digest}"


def told_apart(manuals: Sequence[Manual]) -> list[Manual]:
    """The manuals of one source: tools of one name in several of them are called by their manuals' names, too.

    All of them are, so that no newcomer takes over a name that calls already go to.
    """
    for longer in (_with_manual, _with_manual_and_digest):
        times = Counter(_key(tool.name) for manual in manuals for tool in manual.tools)
        twice = {name for name, count in times.items() if count > 1}
        manuals = [
            replace(
                manual, tools=tuple(longer(one, manual) if _key(one.name) in twice else one for one in manual.tools)
            )
            for manual in manuals
        ]
    return [*manuals]


def _with_manual(tool: ManualTool, manual: Manual) -> ManualTool:
    return replace(tool, name=f"{manual.name}_{tool.name}")


def _with_manual_and_digest(tool: ManualTool, manual: Manual) -> ManualTool:
    return replace(tool, name=f"{manual.name}_{_with_digest(tool.full_name, manual.name)}")


def _key(name: str) -> str:
    """What a name is in the catalog."""
    return canonical_name("", name)


def _tool(item: Any, manual: str, number: int, lent: Mapping[str, Any] | None) -> ManualTool:
    if not is_object(item) or not isinstance(item.get("name"), str) or not item["name"].strip("."):
        raise ConfigError(f"tool number {number + 1} is left out: it has no name")
    name = item["name"]
    template = item.get("tool_call_template") or lent
    if not is_object(template) or not isinstance(template.get("call_template_type"), str):
        raise ConfigError(f"tool {name!r} is left out: it has no tool_call_template with a call_template_type")
    inputs, outputs = item.get("inputs"), item.get("outputs")
    tags = item.get("tags")
    return ManualTool(
        full_name=name if name.startswith(f"{manual}.") else f"{manual}.{name}",
        description=str(item.get("description") or ""),
        inputs=_of_object(inputs if is_object(inputs) else {}),
        outputs=pruned(outputs) or None if is_object(outputs) else None,
        tags=tuple(map(str, tags)) if is_array(tags) else (),
        template=template,
    )


def _of_object(inputs: dict[str, Any]) -> JsonSchema:
    schema = pruned(inputs)
    return schema if "type" in schema else {"type": "object", **schema}


def pruned(schema: Mapping[str, Any]) -> JsonSchema:
    """A schema without keywords that are null: programs write those for what they left out, and none may be."""
    return {key: _pruned(key, value) for key, value in schema.items() if value is not None}


def _pruned(key: str, value: Any) -> Any:
    if key in _VALUES:
        return value
    if is_object(value):
        if key in _SCHEMA_MAPS:
            return {name: pruned(part) if is_object(part) else part for name, part in value.items()}
        return pruned(value)
    if is_array(value):
        return [pruned(part) if is_object(part) else part for part in value]
    return value
