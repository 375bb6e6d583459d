"""Facts about definitions that many schemas share, each found out once.

The tools of one API carry the same definitions, often hundreds of them. A definition is known by its identity, so
nobody may change one while its facts are in use; they live as long as the tools of one listing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.contracts.spec import JsonSchema

T = TypeVar("T")


class SharedDefinitions:
    """Answers to questions about definitions, by the definition's identity."""

    def __init__(self) -> None:
        self._answers: dict[tuple[object, int], tuple[object, Any]] = {}

    def once(self, question: Callable[[Any], T], definition: object) -> T:
        """Ask a question about a definition, or recall the answer."""
        key = (question, id(definition))
        known = self._answers.get(key)
        if known is None:
            # The definition is kept beside its answer, so that no other object gets its identity.
            known = self._answers[key] = (definition, question(definition))
        return cast("T", known[1])


def definitions_of(schema: Any) -> Mapping[str, Any] | None:
    """The definitions of a schema, if it has any."""
    definitions = schema.get("$defs") if is_object(schema) else None
    return definitions if is_object(definitions) and definitions else None


def without_definitions(schema: JsonSchema) -> JsonSchema:
    """The schema itself."""
    return {word: value for word, value in schema.items() if word != "$defs"}


def any_part(schema: Any, question: Callable[[Any], bool], shared: SharedDefinitions | None) -> bool:
    """Whether the answer is yes for the schema or for any of its definitions."""
    definitions = None if shared is None else definitions_of(schema)
    if shared is None or definitions is None:
        return question(schema)
    if question([*definitions]) or question(without_definitions(schema)):
        return True
    return any(shared.once(question, definition) for definition in definitions.values())
