"""Parse the notes of a workflow: a description, and schemas or samples of its input and output."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, NamedTuple

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import is_array, is_object

Direction = Literal["input", "output"]
MAX_NOTE_CHARS = 50_000
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})([^`]*)$")
_JSON_LANGUAGES = frozenset({"", "json", "jsonc", "json5", "jsonschema", "json-schema", "schema"})
_DIRECTION_WORDS: dict[str, Direction] = {
    "input": "input",
    "request": "input",
    "output": "output",
    "response": "output",
}
_JSON_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_SCHEMA_KEYWORDS = frozenset(
    {
        "additionalProperties", "const", "default", "description", "enum", "examples", "format", "items", "maxItems",
        "maxLength", "maximum", "minItems", "minLength", "minimum", "pattern", "required", "title", "type",
    }
)  # fmt: skip
_MAX_DEPTH = 8
_MAX_FIELDS = 100


def parse_note(text: str) -> WorkflowNote:
    """Parse a note; the first schema or sample per direction is used, and an unmarked one is the input."""
    if len(text) > MAX_NOTE_CHARS:
        problem = f"a note of {len(text):,} characters was not read; at most {MAX_NOTE_CHARS:,} are"
        return WorkflowNote(problems=(problem,))
    if text.lstrip().startswith("{"):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return WorkflowNote(text.strip())
        return WorkflowNote(input_schema=_schema(value)) if is_object(value) else WorkflowNote(text.strip())
    description, blocks = _split_fences(text)
    schemas: dict[str, JsonSchema] = {}
    problems: list[str] = []
    for block in blocks:
        direction, is_json = _parse_fence_info(block.info)
        if not is_json or direction in schemas:
            continue
        value, problem = _parse_block(block)
        if problem:
            problems.append(problem)
        elif is_object(value):
            schemas[direction] = _schema(value)
    return WorkflowNote(description, schemas.get("input"), schemas.get("output"), tuple(problems))


def _split_fences(text: str) -> tuple[str, list[_Block]]:
    """Split Markdown into the text outside of fences and the fenced blocks; an unclosed fence ends with the note."""
    outside: list[str] = []
    blocks: list[_Block] = []
    inside: list[str] | None = None
    mark, info = "", ""
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if inside is None and fence is not None:
            mark, info, inside = fence[1], fence[2].strip(), []
        elif inside is None:
            outside.append(line)
        elif fence is not None and fence[1].startswith(mark) and not fence[2].strip():
            blocks.append(_Block(info, "\n".join(inside)))
            inside = None
        else:
            inside.append(line)
    if inside is not None:
        blocks.append(_Block(info, "\n".join(inside)))
    return "\n".join(outside).strip(), blocks


def _parse_fence_info(info: str) -> tuple[Direction, bool]:
    """Return the direction that a fence's info string names, and whether its language is JSON."""
    tokens = [word.strip("()[]{}:,").lower() for word in info.split()]
    directions: list[Direction] = [_DIRECTION_WORDS[word] for word in tokens if word in _DIRECTION_WORDS]
    language = next((word for word in tokens if word not in _DIRECTION_WORDS), "")
    return directions[0] if directions else "input", language in _JSON_LANGUAGES


def _parse_block(block: _Block) -> tuple[Any, str]:
    try:
        return json.loads(block.text), ""
    except (ValueError, RecursionError) as error:
        # A block without a language may be something other than JSON.
        return None, f"its block {block.info!r} is not JSON: {error}" if block.info else ""


def _schema(value: dict[str, Any]) -> JsonSchema:
    return value if _is_schema(value) else infer_schema(value)


def _is_schema(value: dict[str, Any]) -> bool:
    """Return whether an object is a schema and not a sample with a key `type`."""
    if "$schema" in value or "$ref" in value or is_object(value.get("properties")):
        return True
    kind = value.get("type")
    return isinstance(kind, str) and kind in _JSON_TYPES and _SCHEMA_KEYWORDS.issuperset(value)


class WorkflowNote(NamedTuple):
    """Description and schemas of a note, and the problems found in it."""

    description: str = ""
    input_schema: JsonSchema | None = None
    output_schema: JsonSchema | None = None
    problems: tuple[str, ...] = ()


def infer_schema(value: Any, depth: int = 0) -> JsonSchema:
    """Infer a schema from a sample: types only, nothing required; null allows any value, integers allow fractions."""
    if value is None or depth > _MAX_DEPTH:
        return {}
    if is_object(value):
        fields = list(value.items())[:_MAX_FIELDS]
        return {"type": "object", "properties": {name: infer_schema(inner, depth + 1) for name, inner in fields}}
    if is_array(value):
        schemas = [infer_schema(item, depth + 1) for item in value[:_MAX_FIELDS]]
        if not schemas or any(schema != schemas[0] for schema in schemas):  # items of different kinds
            return {"type": "array"}
        return {"type": "array", "items": schemas[0]}
    if isinstance(value, bool):
        return {"type": "boolean"}
    return {"type": "string" if isinstance(value, str) else "number"}


class _Block(NamedTuple):
    info: str
    text: str
