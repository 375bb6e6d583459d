"""`toolpost.lock`: the approved definitions of tools, and the hold on a tool that has changed since."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from toolpost.contracts.errors import ConfigError
from toolpost.contracts.questions import DEFINITION_CHANGED, Question
from toolpost.contracts.spec import ToolSpec
from toolpost.schema.hidden_text import escape_hidden
from toolpost.schema.json_values import SCHEMA_MAPS, is_array, is_object

_VERSION = 1
_ABOUT = "Approved definitions of tools. `toolpost lock` writes this file; commit it."
_LONGEST_SHOWN = 2000
_LONGEST_ARGUMENT = 400
_SHORT = 16
# In a schema: lists without a meaningful order, and values that are not schemas.
_UNORDERED = frozenset({"required", "enum", "type", "allOf", "anyOf", "oneOf", "dependentRequired"})
_VALUES = frozenset({"const", "default", "examples", "example"})
_WORDS = {
    "description": "description",
    "arguments": "arguments",
    "input_schema": "input schema",
    "output_schema": "output schema",
    "annotations": "annotations",
    "target": "target",
}

DEFINITION = "definition"
AGREED = "it was approved"
FIRST_SEEN = "it was first seen"
_ANYTHING = {"type": "object"}


class Pin(Struct, frozen=True, kw_only=True):
    """One tool's definition: `hash` covers all of it, the other fields are for users and for the comparison."""

    hash: str
    description: str
    arguments: tuple[str, ...]
    input_schema: str
    output_schema: str
    annotations: str
    target: str


Pins: TypeAlias = dict[str, dict[str, Pin]]
"""Pins by source, and by the tool's name within it."""


class Change(NamedTuple):
    """A part of a definition that differs; for a schema, its digests before and after."""

    part: str
    before: str
    after: str


class Difference(NamedTuple):
    """A tool that differs from its pin; `before` is None for a new tool, `after` for a removed one."""

    source: str
    tool: str
    kind: Literal["changed", "new", "gone"]
    before: Pin | None
    after: Pin | None

    @property
    def name(self) -> str:
        """The tool's full name."""
        return f"{self.source}.{self.tool}"

    def changes(self) -> list[Change]:
        """Return the changed parts; all parts of a new tool."""
        if self.before is not None and self.after is not None:
            return differences(self.before, self.after)
        if self.after is None:
            return []
        texts = {word: _as_text(getattr(self.after, key)) for key, word in _WORDS.items()}
        return [Change(word, "", text) for word, text in texts.items() if text]

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        changes = [change._asdict() for change in self.changes()]
        return {"source": self.source, "tool": self.name, "kind": self.kind, "changes": changes}


def compare(
    source: str, before: Mapping[str, Pin], after: Mapping[str, Pin], *, whole: bool = True
) -> list[Difference]:
    """Return the tools of a source that differ, by name; without `whole`, unlisted tools are not reported as gone."""
    changes: list[Difference] = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None and new is not None:
            changes.append(Difference(source, name, "new", None, new))
        elif new is None and whole:
            changes.append(Difference(source, name, "gone", old, None))
        elif old is not None and new is not None and old.hash != new.hash:
            changes.append(Difference(source, name, "changed", old, new))
    return changes


def pin_of(spec: ToolSpec, mask: Callable[[str], str]) -> Pin:
    """Pin the original definition of a tool; `mask` removes secrets and machine-specific text."""
    target = spec.target
    goes_to = mask(f"{target.summary}\n{target.detail}" if target else str(spec.extra.get("remote_name", spec.name)))
    annotations = mask(_text(_annotations(spec)))
    description = mask(spec.description)
    schemas = [mask(_text(sort_schema(schema))) for schema in (spec.input_schema, spec.output_schema)]
    properties = spec.input_schema.get("properties")
    return Pin(
        hash=f"sha256:{_digest(_text([spec.name, description, *schemas, annotations, goes_to]))}",
        description=_shown(description),
        arguments=tuple(_argument(*one, mask) for one in sorted(properties.items())) if is_object(properties) else (),
        input_schema=_digest(schemas[0])[:_SHORT],
        output_schema=_digest(schemas[1])[:_SHORT] if spec.output_schema is not None else "",
        annotations=_shown(annotations),
        target=_shown(mask(target.summary if target else goes_to)),
    )


def differences(before: Pin, after: Pin) -> list[Change]:
    """Return the changes between two definitions of a tool."""
    if before.hash == after.hash:
        return []
    old, new = asdict(before), asdict(after)
    if old["arguments"] != new["arguments"]:  # of many, those that differ
        old["arguments"], new["arguments"] = _without(old["arguments"], new), _without(new["arguments"], old)
    changed = [
        Change(word, _as_text(old[key]), _as_text(new[key])) for key, word in _WORDS.items() if old[key] != new[key]
    ]
    # Shown texts are cut, and a target has parts that are not shown.
    return changed or [Change("details", before.hash, after.hash)]


def sort_schema(schema: Any) -> Any:
    """Sort the lists of a schema that have no meaningful order."""
    if is_array(schema):
        return [sort_schema(part) for part in schema]
    if not is_object(schema):
        return schema
    return {key: _sort_part(key, part) for key, part in schema.items()}


def _sort_part(key: str, part: Any) -> Any:
    if key in _VALUES:
        return part
    if key in SCHEMA_MAPS and is_object(part):
        return {name: sort_schema(inner) for name, inner in part.items()}
    if key == "dependentRequired" and is_object(part):
        return {name: sorted(inner, key=_text) if is_array(inner) else inner for name, inner in part.items()}
    if key in _UNORDERED and is_array(part):
        return sorted(part if key == "enum" else map(sort_schema, part), key=_text)
    return sort_schema(part)


def _annotations(spec: ToolSpec) -> dict[str, Any]:
    """Return a source's claims about a tool: for MCP its title and annotations, else its declared effects."""
    extra = spec.extra
    if extra.get("source") == "mcp":
        facts = {key: extra[key] for key in ("title", "annotations") if key in extra}
    else:
        facts = {"side_effects": spec.side_effects, "destructive": spec.safety.destructive}
    return {**facts, "tags": sorted(set(spec.tags))}


class Lock:
    """The lock file: pins by source, and by the tool's name within it.

    A missing file pins nothing; the pins of a file that is deleted while in use still apply.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int] | None = None
        self._sources: dict[str, dict[str, Pin]] = {}

    @property
    def sources(self) -> Mapping[str, Mapping[str, Pin]]:
        """The current pins, read again if another process wrote them; ConfigError if the file cannot be parsed."""
        try:
            status = self.path.stat()
        except OSError:
            return self._sources
        if self._seen != (status.st_mtime_ns, status.st_size):
            self._sources = _read(self.path)
            self._seen = (status.st_mtime_ns, status.st_size)
        return self._sources

    @property
    def written_at(self) -> float | None:
        """The time at which the file with the pins was written; None without one."""
        return None if self._seen is None else self._seen[0] / 1e9

    def pin(self, source: str, name: str, pin: Pin) -> None:
        """Pin one tool; the others stay."""
        self.write({**self.sources, source: {**self.sources.get(source, {}), name: pin}})

    def write(self, sources: Mapping[str, Mapping[str, Pin]]) -> None:
        """Replace the file atomically."""
        written = {source: {name: pin_to_dict(pin) for name, pin in pins.items()} for source, pins in sources.items()}
        write_json(self.path, {"about": _ABOUT, "version": _VERSION, "sources": written})
        self._seen = None


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replace a file by a JSON document atomically; ConfigError if it cannot be written."""
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def pin_to_dict(pin: Pin) -> dict[str, Any]:
    """Return a pin as plain data, without empty parts."""
    return {key: value for key, value in asdict(pin).items() if value}


def _read(path: Path) -> dict[str, dict[str, Pin]]:
    remedy = "restore it from version control, or delete it and run `toolpost lock`"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != _VERSION:
            raise ConfigError(f"{path} has version {document['version']!r}; this Toolpost knows {_VERSION}")
        return {
            source: {name: pin_from_dict(facts) for name, facts in pins.items()}
            for source, pins in document["sources"].items()
        }
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ConfigError(f"{path} is not a lock file ({error}); {remedy}") from error


def pin_from_dict(facts: dict[str, Any]) -> Pin:
    """Build a pin from plain data; ValueError if it has no hash."""
    texts = {key: str(facts.get(key, "")) for key in Pin.__struct_fields__ if key != "arguments"}
    if not texts["hash"]:
        raise ValueError("a tool has no hash")
    return Pin(**texts, arguments=tuple(map(str, facts.get("arguments", ()))))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _shown(text: str, limit: int = _LONGEST_SHOWN) -> str:
    """Escape hidden characters of a text for the file, and cut it."""
    line = escape_hidden(text)
    return line if len(line) <= limit else f"{line[:limit]}…"


def _argument(name: str, schema: Any, mask: Callable[[str], str]) -> str:
    """Render an argument in one line; a changed tool may hide instructions to models in its description."""
    return _shown(f"{name}: {mask(_text(sort_schema(schema)))}", _LONGEST_ARGUMENT)


def _without(lines: Sequence[str], other: Mapping[str, Any]) -> list[str]:
    return [line for line in lines if line not in other["arguments"]]


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else "\n".join(value)


def describe_change(before: Pin, after: Pin, since: str) -> str:
    """Name the parts of a definition that changed, without any text of its source."""
    return f"its {', '.join(change.part for change in differences(before, after))} changed since {since}"


class Hold(Struct, frozen=True, kw_only=True):
    """Blocks the calls of a tool with a definition (`after`) that differs from the pinned one (`before`).

    `before` is None for a tool that was never pinned. `accept` pins the new definition and removes the hold;
    `is_settled` removes it if another process accepted the definition. Without a lock file, the first seen definition
    is the pinned one, and the policy decides whether calls are blocked.
    """

    name: str
    before: Pin | None
    after: Pin
    accept: Callable[[], None]
    is_settled: Callable[[], bool]
    since: str = AGREED

    @property
    def reason(self) -> str:
        """Why the tool is on hold, without any text of its source: models read this."""
        if self.before is None:
            return "it is new and not approved"
        return describe_change(self.before, self.after, self.since)

    def stub(self, spec: ToolSpec) -> ToolSpec:
        """Return the record to list during the hold, without unapproved parts of the new definition."""
        before = self.before
        same_input = before is not None and before.input_schema == self.after.input_schema
        note = f"Blocked: {self.reason}. A call waits for the operator."
        return replace(
            spec,
            description=note if before is None else f"{before.description}\n\n{note}".strip(),
            input_schema=spec.input_schema if same_input else _ANYTHING,
            model_schema=spec.model_schema if same_input else None,
            output_schema=None,
            version=self.after.hash,  # an answer is bound to the shown definition
        )

    def question(self) -> Question:
        """Return the question to the operator; no call of the tool runs before the definition is accepted."""
        why = f"{self.reason[0].upper()}{self.reason[1:]}"
        prompt = f"{self.name} waits for the operator. {why}. The call continues once its definition is accepted."
        return Question(
            kind="approval", prompt=prompt, reason=DEFINITION_CHANGED, payload=self.payload(), key=DEFINITION
        )

    def payload(self) -> dict[str, Any]:
        """Return the old and the new definition, part by part, for the operator."""
        before, after = self.before, self.after
        changes = [] if before is None else [change._asdict() for change in differences(before, after)]
        new = {"description": after.description, "arguments": list(after.arguments)}
        new |= {"annotations": after.annotations, "target": after.target}
        about = {"tool": self.name, "reason": self.reason, "hash": after.hash, "new": before is None}
        return {**about, "changes": changes, DEFINITION: new}
