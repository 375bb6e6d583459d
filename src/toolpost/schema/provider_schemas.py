"""Compile the schemas of tools for model providers, and convert the arguments of calls back.

The schema that a model sees may be looser than the real one, against which every call is validated. It admits every
argument of the real one: what a dialect cannot express becomes JSON text in a string, and is parsed on the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from toolpost.contracts.spec import JsonSchema, ToolDefinition
from toolpost.schema.json_values import is_array, is_object, json_type
from toolpost.schema.provider_codecs import (
    BOXED,
    Codec,
    ItemsCodec,
    ObjectCodec,
    PropertyCodec,
    TextCodec,
    TypeCodec,
    to_json,
)
from toolpost.schema.provider_dialects import (
    ANNOTATIONS,
    Provider,
    ProviderDialect,
    begin_alike,
    dialect_of,
    option_characters,
    shorten,
    violations,
)
from toolpost.schema.provider_view import ArgumentMap, fit_schema
from toolpost.schema.subschemas import SchemaDocument, replace_subschemas
from toolpost.schema.unions import split_types

_NULL: JsonSchema = {"type": "null"}
_PLAIN = PropertyCodec(None)
_REST = "additional_properties"
_LONGEST_NOTE = 600
_MOST_SCHEMAS = 4000  # of one tool, after references are replaced by their targets
_DEEPEST = 40
_OTHERS = ("additionalProperties", "patternProperties", "unevaluatedProperties")
_UNSHOWN_SCALARS = (
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "exclusiveMinimum"),
    *("exclusiveMaximum", "multipleOf", "uniqueItems", "format", "pattern", "default", "minimum", "maximum"),
)
_NO_RULES = ANNOTATIONS | {"default", "deprecated", "examples", "example", "readOnly", "writeOnly", "$comment"}
_HANDLED = frozenset(
    {
        *("type", "properties", "required", "items", "anyOf", "oneOf", "allOf", "enum", "const", "$ref", "not"),
        *("if", "then", "else", "$defs", "definitions", "$schema", "$id", "$comment", *_OTHERS),
    }
)
_IMPLIED = (("properties", "object"), ("additionalProperties", "object"), ("required", "object"), ("items", "array"))


class CompiledSchema(NamedTuple):
    """The schema of a tool's arguments for one provider, and the conversion of arguments in both directions."""

    schema: JsonSchema
    codec: Codec | None
    names: ArgumentMap

    @property
    def is_plain(self) -> bool:
        """Whether arguments need no conversion."""
        return self.codec is None and self.names.is_plain

    def from_model(self, arguments: Any) -> Any:
        """Return the arguments that a model wrote, as the tool takes them."""
        return self.names.from_model(arguments if self.codec is None else self.codec.decode(arguments))

    def to_model(self, arguments: Any) -> Any:
        """Return arguments as the model would write them."""
        shown = self.names.to_model(arguments)
        return shown if self.codec is None else self.codec.encode(shown)


class LeftOut(NamedTuple):
    """A tool that cannot be shown to a provider: the field of its schema, and the reason."""

    name: str
    field: str
    reason: str


class CompiledTools(NamedTuple):
    """The tools of a request for one provider, and those that are left out."""

    definitions: list[ToolDefinition]
    schemas: dict[str, CompiledSchema]
    left_out: list[LeftOut]

    def from_model(self, name: str, arguments: Any) -> Any:
        """Return the arguments that a model wrote for a tool, as the tool takes them."""
        compiled = self.schemas.get(name)
        return arguments if compiled is None else compiled.from_model(arguments)


class ToolCompiler:
    """Compiles tools for one provider; schemas that were compiled before are reused.

    A schema must not change while it is in use.
    """

    def __init__(self, provider: Provider) -> None:
        self.dialect = dialect_of(provider)
        self._known: dict[_ToolKey, _KnownTool] = {}
        self._last: tuple[list[ToolDefinition], CompiledTools] = ([], CompiledTools([], {}, []))

    def compile(self, tools: Sequence[ToolDefinition]) -> CompiledTools:
        """Compile the tools of a request. A tool that cannot be shown is left out, and the others are returned."""
        if self._last[0] == (listed := list(tools)):
            return self._last[1]
        known, current = self._known, dict[_ToolKey, _KnownTool]()
        definitions, schemas, left_out = compiled = CompiledTools([], {}, [])
        for tool in listed:
            name, description, parameters = tool
            key = (id(parameters), name, description)
            entry = current[key] = known.get(key) or self._compile(tool)
            schema = entry.schema
            if isinstance(schema, LeftOut):
                left_out.append(schema)
            else:
                definitions.append(entry.shown)
                schemas[name] = schema
        self._known = current
        self._last = (listed, compiled)
        return compiled

    def _compile(self, tool: ToolDefinition) -> _KnownTool:
        compiled = compile_schema(tool.parameters, self.dialect, name=tool.name)
        if isinstance(compiled, LeftOut):
            return _KnownTool(tool.parameters, tool, compiled)
        shown = ToolDefinition(tool.name, shorten(tool.description, self.dialect), compiled.schema)
        return _KnownTool(tool.parameters, shown, compiled)


_ToolKey: TypeAlias = tuple[int, str, str]


class _KnownTool(NamedTuple):
    """A compiled tool; the reference reserves the id() of its schema."""

    parameters: JsonSchema
    shown: ToolDefinition
    schema: CompiledSchema | LeftOut


def compile_schema(schema: JsonSchema, dialect: ProviderDialect, *, name: str = "") -> CompiledSchema | LeftOut:
    """Compile the schema of a tool's arguments, or return the field because of which it cannot be shown."""
    try:
        names = fit_schema(schema, property_name=dialect.property_name)
        if not dialect.rewrites:
            return CompiledSchema(names.schema, None, names)
        compiled = _Rewriter(dialect, names.schema).root()
    except _CannotBeShownError as error:
        return LeftOut(name, error.field, error.reason)
    except (TypeError, ValueError, RecursionError) as error:
        return LeftOut(name, "$", f"the schema cannot be compiled: {error}")
    return CompiledSchema(compiled.schema, compiled.codec, names)


class _CannotBeShownError(Exception):
    """A schema cannot be shown to a provider because of a field."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field
        self.reason = reason


class _Shown(NamedTuple):
    schema: JsonSchema
    codec: Codec | None = None


class _Rewriter:
    """Rewrites one schema into a dialect."""

    def __init__(self, dialect: ProviderDialect, root: JsonSchema) -> None:
        self._dialect = dialect
        self._root = root
        self._document: SchemaDocument | None = None
        self._keywords = dialect.keywords
        self._count = self._properties = self._options = self._characters = 0
        self._following: list[str] = []

    def root(self) -> _Shown:
        """Return the schema of all arguments."""
        stored = {
            word: part for word, part in self._root.items() if word not in ("$defs", "definitions", "$schema", "$id")
        }
        if self._keywords is None:
            inlined = self._inlined(stored)
            if self._dialect.bare_root:
                inlined = {word: part for word, part in inlined.items() if word in ("type", "properties", "required")}
            return _Shown(inlined)
        shown = self._object(stored, 1)
        if self._may_be_too_large and (rejected := next(violations(shown.schema, self._dialect), None)) is not None:
            raise _CannotBeShownError(*rejected)
        return shown

    @property
    def _may_be_too_large(self) -> bool:
        """Whether the schema may have too many properties or characters; parts that are not shown count, too."""
        most, longest = self._dialect.most_properties, self._dialect.most_characters
        return (most is not None and self._properties > most) or (longest is not None and self._characters > longest)

    # ---------------------------------------------------------------- dialects that only lack references

    def _inlined(self, schema: JsonSchema) -> JsonSchema:
        """Copy a schema with references replaced by their targets; a recursive one admits anything."""
        reference = schema.get("$ref")
        if "$id" in schema:  # a document in the document, with separate references
            return {word: part for word, part in schema.items() if word in ANNOTATIONS}
        if not isinstance(reference, str):
            return replace_subschemas(schema, self._inlined)
        rest = {word: part for word, part in schema.items() if word != "$ref"}
        target = self._enter(reference, schema)
        if target is None:
            return {word: part for word, part in rest.items() if word in ANNOTATIONS}
        inlined = self._inlined(target)
        self._following.pop()
        rest = replace_subschemas(rest, self._inlined)
        return (
            {**inlined, **rest} if rest.keys() <= ANNOTATIONS else {**rest, "allOf": [inlined, *rest.get("allOf", [])]}
        )

    def _enter(self, reference: str, source: JsonSchema) -> JsonSchema | None:
        """Return the target of a reference, to be left with `_following.pop`.

        None if it is recursive or too large, or not a JSON Pointer.
        """
        self._count += 1
        if reference in self._following or self._count > _MOST_SCHEMAS or not reference.startswith("#/"):
            return None
        target = self._target(reference, source)
        if target is None:
            raise _CannotBeShownError(reference, "the reference leads nowhere")
        self._following.append(reference)
        return target if is_object(target) else {}

    def _target(self, reference: str, source: JsonSchema) -> Any:
        before, _, name = reference.rpartition("/")
        if before == "#/$defs" and "%" not in name and "~" not in name:  # nearly all references, without an index
            return self._root.get("$defs", {}).get(name)
        if self._document is None:
            self._document = SchemaDocument(self._root)
        return self._document.target(reference, source)

    # ---------------------------------------------------------------- dialects that lack keywords

    def _any(self, schema: Any, level: int) -> _Shown:
        """Rewrite any schema; one that the dialect cannot express is JSON text."""
        self._count += 1
        if not is_object(schema) or "$id" in schema or self._count > _MOST_SCHEMAS or level > _DEEPEST:
            return self._text(schema)
        if isinstance(reference := schema.get("$ref"), str):
            return self._referred(schema, reference, level)
        if "allOf" in schema:
            merged = _merged(schema, self._resolve)
            return self._text(schema) if merged is None else self._any(merged, level)
        if "const" in schema:
            schema = {**{word: part for word, part in schema.items() if word != "const"}, "enum": [schema["const"]]}
        if "enum" in schema:
            return self._enum(schema)
        if is_array(schema.get("type")):
            schema = split_types(schema)
        if "anyOf" in schema or "oneOf" in schema:
            return self._alternatives(schema, level)
        return self._typed(schema, level)

    def _typed(self, schema: JsonSchema, level: int) -> _Shown:
        kind = schema.get("type") or _implied_type(schema)
        if kind == "object":
            too_deep = self._dialect.most_levels is not None and level >= self._dialect.most_levels
            declared = schema.get("properties")
            if too_deep or not (is_object(declared) and declared):
                return self._text(schema)
            return self._object(schema, level + 1)
        if kind == "array":
            if "prefixItems" in schema or not is_object(items := schema.get("items", {})):
                return self._text(schema)
            item = self._any(items, level)
            shown = {**self._kept(schema), "type": "array", "items": item.schema}
            return _Shown(shown, None if item.codec is None else ItemsCodec(item.codec))
        if kind is None:
            return self._text(schema)
        return _Shown({**self._kept(schema), "type": kind})

    def _object(self, schema: JsonSchema, level: int) -> _Shown:
        declared: Mapping[str, Any] = schema.get("properties") or {}
        wanted: Sequence[str] = schema.get("required") or ()
        required = [name for name in wanted if name in declared]
        properties: dict[str, JsonSchema] = {}
        members: dict[str, PropertyCodec] = {}
        for name, part in declared.items():
            shown = self._any(part, level)
            member = PropertyCodec(shown.codec)
            if self._dialect.requires_all and name not in required:
                shown, member = _optional(shown)
            properties[name], members[name] = shown.schema, member
        rest = None
        if len(required) < len(wanted) or any(_admits_others(schema.get(word)) for word in _OTHERS):
            rest = _REST
            while rest in properties:
                rest += "_"
            properties[rest] = self._rest()
        boxes = sum(member.boxed for member in members.values())
        self._properties += len(properties) + boxes
        self._characters += sum(map(len, properties)) + boxes * len(BOXED)
        whole: JsonSchema = {**self._kept(schema), "type": "object", "properties": properties}
        if self._dialect.requires_all:
            whole |= {"required": list(properties), "additionalProperties": False}
        elif required:
            whole["required"] = required
        is_plain = rest is None and all(member == _PLAIN for member in members.values())
        return _Shown(whole, None if is_plain else ObjectCodec(members, rest))

    def _rest(self) -> JsonSchema:
        """Return the schema of the property for undeclared properties."""
        description = "Other properties, as JSON text of one object; null for none."
        return {"description": description, "anyOf": [{"type": "string"}, _NULL]}

    def _referred(self, schema: JsonSchema, reference: str, level: int) -> _Shown:
        target = self._enter(reference, schema)
        if target is None:
            return self._text(schema)
        beside = {word: part for word, part in schema.items() if word != "$ref"}
        together = {**target, **beside} if beside.keys() <= ANNOTATIONS else {"allOf": [target, beside]}
        shown = self._any(together, level)
        self._following.pop()
        return shown

    def _resolve(self, schema: JsonSchema) -> JsonSchema | None:
        """Return the target of a schema that is only a reference; None if it is recursive."""
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        target = self._enter(reference, schema)
        if target is not None:
            self._following.pop()
        return target

    def _enum(self, schema: JsonSchema) -> _Shown:
        options = list(schema["enum"]) if is_array(schema["enum"]) else []
        kinds = {json_type(option) for option in options}
        kept = {word: part for word, part in self._kept(schema).items() if word in ANNOTATIONS}
        if not options or kinds & {"object", "array"}:
            return self._text(schema)
        if not self._has_room(options):
            note = f"One of {len(options):,} values."
            about = f"{kept['description']} {note}" if "description" in kept else note
            return self._any({**kept, "description": about, "type": sorted(kinds)}, 1)
        if kinds == {"string"}:
            return _Shown({**kept, "type": "string", "enum": options})
        if kinds == {"null"}:
            return _Shown({**kept, **_NULL})
        if self._dialect.text_enums:
            texts = list(dict.fromkeys(to_json(option) for option in options))
            return _Shown({**kept, "type": "string", "enum": texts}, TextCodec())
        if kinds == {"integer", "number"}:
            kinds = {"number"}
            return _Shown({**kept, "type": "number", "enum": options})
        by_kind = [
            {**({} if kind == "null" else {"enum": [one for one in options if json_type(one) == kind]}), "type": kind}
            for kind in sorted(kinds)
        ]
        return _Shown({**kept, **by_kind[0]} if len(by_kind) == 1 else {**kept, "anyOf": by_kind})

    def _has_room(self, options: Sequence[Any]) -> bool:
        """Return whether an enum is within the limits, together with those before it."""
        dialect, characters = self._dialect, option_characters(options)
        most, longest = dialect.most_options, dialect.most_characters
        if most is not None and self._options + len(options) > most:
            return False
        if longest is not None and self._characters + characters > longest:
            return False
        if not dialect.admits_options(options):
            return False
        self._options += len(options)
        self._characters += characters
        return True

    def _alternatives(self, schema: JsonSchema, level: int) -> _Shown:
        """Rewrite alternatives; values must be convertible by their type, else the whole is JSON text."""
        options = schema.get("anyOf") or schema.get("oneOf")
        beside = {word: part for word, part in schema.items() if word not in ("anyOf", "oneOf")}
        rules = {word: part for word, part in beside.items() if word not in _NO_RULES}
        if not is_array(options) or not options or ("anyOf" in schema and "oneOf" in schema):
            return self._text(schema)
        shown: list[_Shown] = []
        for option in options:
            joined = _joined(option, rules) if rules else option
            one = self._text(option) if joined is None else self._any(joined, level)
            if one not in shown:
                shown.append(one)
        kept = {word: part for word, part in beside.items() if word in ANNOTATIONS}
        if len(shown) == 1:
            return _Shown({**shown[0].schema, **kept}, shown[0].codec)
        if self._dialect.distinct_objects and begin_alike(_flat(shown)):
            return self._text(schema)
        if all(one.codec is None for one in shown):
            return _Shown({**kept, "anyOf": _flat(shown)})
        codec = _codecs_by_type(shown)
        return self._text(schema) if codec is None else _Shown({**kept, "anyOf": _flat(shown)}, codec)

    def _kept(self, schema: JsonSchema) -> JsonSchema:
        """Return the keywords that the dialect has, without subschemas; the description has the other scalars."""
        kept: JsonSchema = {}
        lost: list[str] = []
        for word, value in schema.items():
            if word in _HANDLED:
                continue
            if word in self._allowed and (word != "format" or self._dialect.has_format(schema)):
                kept[word] = value
            elif word in _UNSHOWN_SCALARS:
                lost.append(f"{word}: {to_json(value)}")
        if lost:
            before = kept.get("description")
            note = f"({', '.join(lost)})"[:_LONGEST_NOTE]
            kept["description"] = f"{before} {note}" if isinstance(before, str) and before else note
        return kept

    @property
    def _allowed(self) -> frozenset[str]:
        return self._keywords or frozenset()

    def _text(self, schema: Any) -> _Shown:
        """Return a string for a value as JSON text, with the schema in its description."""
        about = schema if is_object(schema) else {}
        before = about.get("description")
        rules = {word: part for word, part in about.items() if word not in ANNOTATIONS}
        note = f"JSON text of a value{_schema_note(rules)}."
        shown: JsonSchema = {"type": "string", "description": f"{before} {note}" if before else note}
        if isinstance(title := about.get("title"), str):
            shown["title"] = title
        return _Shown(shown, TextCodec())


def _optional(shown: _Shown) -> tuple[_Shown, PropertyCodec]:
    """Return the schema of an optional property where all are required: null means that it is omitted."""
    rules = shown.schema.copy()
    kept: JsonSchema = {word: rules.pop(word) for word in ("title", "description") if word in rules}
    if not _admits_null(rules):
        options = rules["anyOf"] if rules.keys() == {"anyOf"} else [rules]
        return _Shown({**kept, "anyOf": [*options, _NULL]}), PropertyCodec(shown.codec, omitted_as_null=True)
    box: JsonSchema = {
        "type": "object",
        "properties": {BOXED: rules},
        "required": [BOXED],
        "additionalProperties": False,
    }
    return _Shown({**kept, "anyOf": [box, _NULL]}), PropertyCodec(shown.codec, omitted_as_null=True, boxed=True)


def _admits_null(rules: JsonSchema) -> bool:
    return rules.get("type") == "null" or any(map(_admits_null, rules.get("anyOf", ())))


def _admits_others(rule: Any) -> bool:
    """Return whether a rule for undeclared properties, such as additionalProperties, admits some explicitly."""
    return rule is True or is_object(rule)


def _implied_type(schema: JsonSchema) -> str | None:
    return next((kind for word, kind in _IMPLIED if word in schema), None)


def _merged(schema: JsonSchema, resolve: Callable[[JsonSchema], JsonSchema | None]) -> JsonSchema | None:
    """Merge `allOf` into one schema; None if two parts have different rules for one keyword."""
    parts = schema["allOf"]
    whole: JsonSchema = {word: part for word, part in schema.items() if word != "allOf"}
    for part in parts if is_array(parts) else ():
        resolved = resolve(part) if is_object(part) else None
        if resolved is not None and "allOf" in resolved:
            resolved = _merged(resolved, resolve)
        joined = None if resolved is None else _joined(whole, resolved)
        if joined is None:
            return None
        whole = joined
    return whole


def _joined(one: Any, other: JsonSchema) -> JsonSchema | None:
    """Return the rules of two schemas as one; None if they have different rules for one keyword."""
    if not is_object(one):
        return None
    whole = dict(one)
    for word, value in other.items():
        before = whole.get(word, value)
        if word in ANNOTATIONS or before == value:
            whole.setdefault(word, value)
        elif word == "required" and is_array(before) and is_array(value):
            whole[word] = list(dict.fromkeys([*before, *value]))
        elif word == "properties" and is_object(before) and all(before.get(key, it) == it for key, it in value.items()):
            whole[word] = {**before, **value}
        else:
            return None
    return whole


def _codecs_by_type(options: Sequence[_Shown]) -> Codec | None:
    """Return the conversion of alternatives by the type of a value; None if two of one type differ."""
    texts = [one for one in options if isinstance(one.codec, TextCodec)]
    if texts:  # the type of a text does not tell the type of its value
        others = [one for one in options if one.schema != _NULL]
        return texts[0].codec if len(others) == 1 else None
    codecs: dict[str, Codec | None] = {}
    for one in options:
        for kind in _kinds(one.schema):
            if codecs.setdefault(kind, one.codec) != one.codec:
                return None
    return TypeCodec({kind: codec for kind, codec in codecs.items() if codec is not None})


def _kinds(schema: JsonSchema) -> list[str]:
    """Return the types of a rewritten schema."""
    kind = schema.get("type")
    return [kind] if isinstance(kind, str) else [each for one in schema["anyOf"] for each in _kinds(one)]


def _flat(options: Sequence[_Shown]) -> list[JsonSchema]:
    """Return the schemas of alternatives, without alternatives within alternatives."""
    flat: list[JsonSchema] = []
    for one in options:
        flat.extend(one.schema["anyOf"] if one.schema.keys() == {"anyOf"} else [one.schema])
    return flat


def _schema_note(rules: JsonSchema) -> str:
    """Return the rules for a value, for a description; nothing for long ones."""
    if not rules:
        return ""
    try:
        text = to_json(rules)
    except (TypeError, ValueError, RecursionError):
        return ""
    return f" that matches the JSON Schema {text}" if len(text) <= _LONGEST_NOTE else ""
