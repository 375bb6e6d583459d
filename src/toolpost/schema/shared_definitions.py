"""Facts about definitions that many schemas share, computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, cast

import orjson

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import compact_encoder, is_object
from toolpost.schema.plain_schemas import is_plain_schema

T = TypeVar("T")
_KEPT_SCHEMAS = 8
_MOST_DEFINITIONS = 12
_to_json = compact_encoder(allow_nan=False, ensure_ascii=False)


class SharedDefinitions:
    """Cache of facts about definitions that many schemas share, by the identity of the definition.

    The tools of one API have the same definitions, often hundreds of them. A definition must not change while its facts
    are in use; the cache exists as long as the tools of one listing.
    """

    def __init__(self) -> None:
        self._results: dict[tuple[object, int], tuple[object, Any]] = {}
        self._seen: dict[int, object] = {}
        self._known: dict[int, _KnownSchema] = {}

    def is_plain(self, schema: Any) -> bool:
        """Return whether a schema is plain (see `is_plain_schema`); computed once for all checks of its tool.

        A schema with shared definitions is not plain: it would be searched again for every tool.
        """
        return (self._known.get(id(schema)) or self._examine(schema)).is_plain

    def text(self, schema: Any) -> str | None:
        """Return a schema that is not plain as JSON, encoded once; None if it shares its definitions or is not JSON.

        A string that the text does not contain is not in the schema.
        """
        return (self._known.get(id(schema)) or self._examine(schema)).text

    def _examine(self, schema: Any) -> _KnownSchema:
        definitions = definitions_of(schema)
        shared = definitions is not None and self._are_shared(definitions)
        is_plain = not shared and is_plain_schema(schema)
        text = None if is_plain or shared else _write(schema)
        if len(self._known) >= _KEPT_SCHEMAS:
            self._known.clear()
        facts = self._known[id(schema)] = _KnownSchema(schema, is_plain, text)
        return facts

    def _are_shared(self, definitions: Mapping[str, Any]) -> bool:
        """Return whether definitions are many, or another schema has some of them too."""
        seen, shared = self._seen, len(definitions) > _MOST_DEFINITIONS
        for definition in definitions.values():
            shared = shared or id(definition) in seen
            seen[id(definition)] = definition
        return shared

    def once(self, fn: Callable[[Any], T], definition: object) -> T:
        """Return `fn(definition)`, computed once."""
        key = (fn, id(definition))
        result = self._results.get(key)
        if result is None:
            # The reference to the definition prevents that another object gets the same id().
            result = self._results[key] = (definition, fn(definition))
        return cast("T", result[1])


class _KnownSchema(NamedTuple):
    """A schema, whether it is plain, or else its text; the reference reserves the id() of the schema."""

    schema: object
    is_plain: bool
    text: str | None


def _write(schema: Any) -> str | None:
    """Encode a schema as JSON; None if it is not JSON."""
    with suppress(orjson.JSONEncodeError):  # such as an integer of more than 64 bits
        text = orjson.dumps(schema).decode()
        if "null" not in text:  # null may represent a number that is not JSON
            return text
    try:
        return _to_json(schema)
    except (TypeError, ValueError, RecursionError):
        return None


def definitions_of(schema: Any) -> Mapping[str, Any] | None:
    """Return the definitions of a schema; None without any."""
    definitions = schema.get("$defs") if is_object(schema) else None
    return definitions if is_object(definitions) and definitions else None


def without_definitions(schema: JsonSchema) -> JsonSchema:
    """Copy a schema without its definitions."""
    return {word: value for word, value in schema.items() if word != "$defs"}


def any_part(schema: Any, predicate: Callable[[Any], bool], shared: SharedDefinitions | None) -> bool:
    """Return whether `predicate` is true for the schema or for any of its definitions."""
    definitions = None if shared is None else definitions_of(schema)
    if shared is None or definitions is None:
        return predicate(schema)
    if predicate([*definitions]) or predicate(without_definitions(schema)):
        return True
    return any(shared.once(predicate, definition) for definition in definitions.values())
