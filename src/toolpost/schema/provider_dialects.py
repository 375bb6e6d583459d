"""The JSON Schema that each model provider accepts for the arguments of a tool, and the check of a schema against it.

docs/model-providers.md has the rules as a table with their sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.provider_view import lacks_items
from toolpost.schema.subschemas import REFERENCES, subschemas

Provider: TypeAlias = Literal["openai", "openai-strict", "anthropic", "gemini", "bedrock", "mistral", "json"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_NOT_AT_THE_TOP = ("oneOf", "anyOf", "allOf", "not", "enum", "const", *REFERENCES)
ANNOTATIONS = frozenset({"title", "description"})
_NUMBERS = frozenset({"minimum", "maximum"})
_STRICT = (
    ANNOTATIONS
    | _NUMBERS
    | {
        *("type", "properties", "required", "additionalProperties", "items", "anyOf", "enum"),
        *("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "pattern", "format"),
    }
)
_GEMINI = (
    ANNOTATIONS
    | _NUMBERS
    | {
        *("type", "properties", "required", "items", "anyOf", "enum", "format"),
        *("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties", "pattern"),
    }
)
_STRICT_FORMATS = {
    "string": frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
}
_GEMINI_FORMATS = {
    "string": frozenset({"date-time", "enum"}),
    "integer": frozenset({"int32", "int64"}),
    "number": frozenset({"float", "double"}),
}
_MANY_OPTIONS = 250  # of one enum, from which `longest_options` applies


class ProviderDialect(NamedTuple):
    """The rules of one provider.

    `keywords` are those that schemas may have, and then every schema has a type or alternatives; None allows all. If
    `inlines`, references are not allowed; if `closed`, every object declares its properties, and if `requires_all`, it
    requires them. With `text_enums`, options are strings. With `array_items`, arrays have a schema of their items. With
    `distinct_objects`, alternatives that are objects differ in their first property. `formats` are by type.
    `most_characters` is for the names and options of a schema, `longest_options` for those of one large enum.
    """

    provider: Provider
    keywords: frozenset[str] | None = None
    formats: Mapping[str, frozenset[str]] | None = None
    property_name: re.Pattern[str] = _NAME
    inlines: bool = False
    closed: bool = False
    requires_all: bool = False
    text_enums: bool = False
    array_items: bool = False
    distinct_objects: bool = False
    bare_root: bool = False
    longest_description: int | None = None
    most_levels: int | None = None
    most_properties: int | None = None
    most_options: int | None = None
    most_characters: int | None = None
    longest_options: int | None = None

    @property
    def rewrites(self) -> bool:
        """Whether schemas need more than other names, schemas of items and an object at their root."""
        return self.keywords is not None or self.inlines

    def has_format(self, schema: JsonSchema) -> bool:
        """Return whether the `format` of a schema is supported for its type."""
        kind = schema.get("type")
        return self.formats is None or (isinstance(kind, str) and schema["format"] in self.formats.get(kind, ()))

    def admits_options(self, options: Sequence[Any]) -> bool:
        """Return whether one enum may have these options."""
        longest = self.longest_options
        return longest is None or len(options) <= _MANY_OPTIONS or option_characters(options) <= longest


DIALECTS: Mapping[Provider, ProviderDialect] = {
    dialect.provider: dialect
    for dialect in (
        ProviderDialect("openai", array_items=True, longest_description=1024),
        ProviderDialect(
            "openai-strict",
            keywords=_STRICT,
            formats=_STRICT_FORMATS,
            inlines=True,
            closed=True,
            requires_all=True,
            array_items=True,
            distinct_objects=True,
            longest_description=1024,
            most_levels=10,
            most_properties=5000,
            most_options=1000,
            most_characters=120_000,
            longest_options=15_000,
        ),
        ProviderDialect("anthropic"),
        ProviderDialect(
            "gemini",
            keywords=_GEMINI,
            formats=_GEMINI_FORMATS,
            property_name=_IDENTIFIER,
            inlines=True,
            closed=True,
            text_enums=True,
            array_items=True,
        ),
        ProviderDialect("bedrock", inlines=True, bare_root=True),
        ProviderDialect("mistral"),
        ProviderDialect("json"),
    )
}


class RejectedField(NamedTuple):
    """A part of a schema that a provider rejects: the JSON path of the field, and the reason."""

    field: str
    reason: str


def violations(schema: JsonSchema, dialect: ProviderDialect) -> Iterator[RejectedField]:
    """Yield the parts of the schema of a tool's arguments that a provider rejects."""
    yield from _root_violations(schema, dialect)
    properties = options = characters = 0
    stack: list[tuple[str, JsonSchema, int]] = [("$", schema, 1)]
    while stack:
        path, part, level = stack.pop()
        yield from _own_violations(part, dialect, path)
        declared, listed = part.get("properties"), part.get("enum")
        if is_object(declared):
            properties += len(declared)
            characters += sum(map(len, declared))
            if dialect.most_levels is not None and level > dialect.most_levels:
                yield RejectedField(path, f"objects are nested deeper than {dialect.most_levels} levels")
        if is_array(listed):
            options += len(listed)
            characters += option_characters(listed)
        for inner in subschemas(part):
            where = f"{path}.{inner.keyword}" if inner.key is None else f"{path}.{inner.keyword}.{inner.key}"
            stack.append((where, inner.schema, level + (inner.keyword == "properties")))
    if dialect.most_properties is not None and properties > dialect.most_properties:
        yield RejectedField("$", f"it has more than {dialect.most_properties} properties")
    if dialect.most_options is not None and options > dialect.most_options:
        yield RejectedField("$", f"its enums have more than {dialect.most_options} options")
    if dialect.most_characters is not None and characters > dialect.most_characters:
        yield RejectedField("$", f"its names and options have more than {dialect.most_characters} characters")


def option_characters(options: Sequence[Any]) -> int:
    """Return the number of characters of options."""
    return sum(len(option) for option in options if isinstance(option, str))


def _root_violations(schema: JsonSchema, dialect: ProviderDialect) -> Iterator[RejectedField]:
    if schema.get("type") != "object" or not is_object(schema.get("properties")):
        yield RejectedField("$", "the schema is not an object with properties")
    for keyword in _NOT_AT_THE_TOP:
        if keyword in schema:
            yield RejectedField(f"$.{keyword}", f"{keyword} is not allowed at the root")
    if dialect.bare_root:
        for keyword in schema.keys() - {"type", "properties", "required"}:
            yield RejectedField(f"$.{keyword}", f"{keyword} is not allowed at the root")


def _own_violations(part: JsonSchema, dialect: ProviderDialect, path: str) -> Iterator[RejectedField]:
    for name in part["properties"] if is_object(part.get("properties")) else ():
        if not dialect.property_name.fullmatch(name):
            yield RejectedField(f"{path}.properties.{name}", "the name has other characters, or too many")
    if dialect.inlines:
        yield from (
            RejectedField(f"{path}.{word}", "references are not allowed") for word in REFERENCES if word in part
        )
    if dialect.array_items and lacks_items(part):
        yield RejectedField(path, "an array has no schema of its items")
    if dialect.keywords is None:
        return
    for word in part.keys() - dialect.keywords:
        yield RejectedField(f"{path}.{word}", f"the keyword {word} is not supported")
    if "format" in part and not dialect.has_format(part):
        yield RejectedField(f"{path}.format", f"the format {part['format']!r} is not supported")
    yield from _type_violations(part, dialect, path)
    yield from _option_violations(part, dialect, path)


def _type_violations(part: JsonSchema, dialect: ProviderDialect, path: str) -> Iterator[RejectedField]:
    kind = part.get("type")
    if not isinstance(kind, str) and "anyOf" not in part:
        yield RejectedField(path, "it has no single type and no alternatives")
    if kind == "object" and not is_object(part.get("properties")):
        yield RejectedField(path, "an object has no properties")
    if kind == "object" and dialect.requires_all:
        if part.get("additionalProperties") is not False:
            yield RejectedField(path, "additionalProperties is not false")
        if set(part.get("required", ())) != set(part.get("properties", {})):
            yield RejectedField(path, "it does not require all its properties")


def _option_violations(part: JsonSchema, dialect: ProviderDialect, path: str) -> Iterator[RejectedField]:
    options, alternatives = part.get("enum"), part.get("anyOf")
    if is_array(options):
        if dialect.text_enums and any(not isinstance(option, str) for option in options):
            yield RejectedField(f"{path}.enum", "an option is not a string")
        if not dialect.admits_options(options):
            yield RejectedField(f"{path}.enum", f"its options have more than {dialect.longest_options} characters")
    if dialect.distinct_objects and is_array(alternatives) and begin_alike(alternatives):
        yield RejectedField(f"{path}.anyOf", "two objects have the same first property")


def begin_alike(alternatives: Sequence[Any]) -> bool:
    """Return whether two alternatives are objects whose first properties have one name and no distinct options."""
    firsts: list[tuple[str, set[str]]] = []
    for one in alternatives:
        declared = one.get("properties") if is_object(one) else None
        if not is_object(declared) or not declared:
            continue
        name, first = next(iter(declared.items()))
        listed = first.get("enum") if is_object(first) else None
        options = {repr(option) for option in listed} if is_array(listed) else set[str]()
        if any(name == other and (not options or not known or options & known) for other, known in firsts):
            return True
        firsts.append((name, options))
    return False


def dialect_of(provider: str) -> ProviderDialect:
    """Return the rules of a provider; ValueError lists the known ones."""
    for name, dialect in DIALECTS.items():
        if name == provider:
            return dialect
    raise ValueError(f"unknown provider {provider!r}; use one of: {', '.join(DIALECTS)}")


def shorten(description: Any, dialect: ProviderDialect) -> str:
    """Return a description within the provider's limit."""
    text, longest = str(description or ""), dialect.longest_description
    return text if longest is None or len(text) <= longest else f"{text[: longest - 1]}…"
