"""What people write beside a workflow: words about it, and fenced blocks that hold a schema or a sample."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from toolpost.schema.jsontypes import is_object
from toolpost.sources.webhook.samples import schema_of

if TYPE_CHECKING:
    from toolpost.contracts.spec import JsonSchema

Direction = Literal["input", "output"]
LONGEST_NOTE = 50_000
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})([^`]*)$")
_READ_AS_JSON = frozenset({"", "json", "jsonc", "json5", "jsonschema", "json-schema", "schema"})
_MARKS: dict[str, Direction] = {
    "input": "input",
    "request": "input",
    "output": "output",
    "response": "output",
}
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_KEYWORDS = frozenset(
    {
        "additionalProperties", "const", "default", "description", "enum", "examples", "format", "items", "maxItems",
        "maxLength", "maximum", "minItems", "minLength", "minimum", "pattern", "required", "title", "type",
    }
)  # fmt: skip


class Note(NamedTuple):
    """A note that was read: its words, the schemas in it, and what could not be read."""

    words: str = ""
    input_schema: JsonSchema | None = None
    output_schema: JsonSchema | None = None
    problems: tuple[str, ...] = ()


class _Block(NamedTuple):
    info: str
    text: str


def read_note(text: str) -> Note:
    """Read a note; the first schema or sample of each direction counts, and one that is not marked is an input."""
    if len(text) > LONGEST_NOTE:
        return Note(problems=(f"a note of {len(text):,} characters was not read; at most {LONGEST_NOTE:,} are",))
    if text.lstrip().startswith("{"):
        return _bare(text)
    words, blocks = _taken_apart(text)
    schemas: dict[str, JsonSchema] = {}
    problems: list[str] = []
    for block in blocks:
        direction, is_json = _meaning(block.info)
        if not is_json or direction in schemas:
            continue
        value, problem = _value(block)
        if problem:
            problems.append(problem)
        elif is_object(value):
            schemas[direction] = _schema(value)
    return Note(words, schemas.get("input"), schemas.get("output"), tuple(problems))


def _bare(text: str) -> Note:
    """A note that is nothing but JSON; what only begins like it is words."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return Note(text.strip())
    return Note(input_schema=_schema(value)) if is_object(value) else Note(text.strip())


def _taken_apart(text: str) -> tuple[str, list[_Block]]:
    """The words outside of fences, and what is inside; a fence that is never closed goes to the end."""
    words: list[str] = []
    blocks: list[_Block] = []
    inside: list[str] | None = None
    mark, info = "", ""
    for line in text.splitlines():
        found = _FENCE.match(line)
        if inside is None and found is not None:
            mark, info, inside = found[1], found[2].strip(), []
        elif inside is None:
            words.append(line)
        elif found is not None and found[1].startswith(mark) and not found[2].strip():
            blocks.append(_Block(info, "\n".join(inside)))
            inside = None
        else:
            inside.append(line)
    if inside is not None:
        blocks.append(_Block(info, "\n".join(inside)))
    return "\n".join(words).strip(), blocks


def _meaning(info: str) -> tuple[Direction, bool]:
    """What a fence's own words say: the direction, and whether JSON is to be expected."""
    told = [word.strip("()[]{}:,").lower() for word in info.split()]
    marks: list[Direction] = [_MARKS[word] for word in told if word in _MARKS]
    language = next((word for word in told if word not in _MARKS), "")
    return marks[0] if marks else "input", language in _READ_AS_JSON


def _value(block: _Block) -> tuple[Any, str]:
    try:
        return json.loads(block.text), ""
    except (ValueError, RecursionError) as error:
        # A block without a language need not be meant as JSON.
        return None, f"its block {block.info!r} is not JSON: {error}" if block.info else ""


def _schema(value: dict[str, Any]) -> JsonSchema:
    return value if _is_schema(value) else schema_of(value)


def _is_schema(value: dict[str, Any]) -> bool:
    """Whether an object is a schema, and not a sample that happens to have a `type`."""
    if "$schema" in value or "$ref" in value or is_object(value.get("properties")):
        return True
    kind = value.get("type")
    return isinstance(kind, str) and kind in _TYPES and _KEYWORDS.issuperset(value)
