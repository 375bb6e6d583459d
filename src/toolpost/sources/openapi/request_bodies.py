"""Read the request bodies of operations, and choose among their media types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, cast

from toolpost.contracts.spec import JsonSchema
from toolpost.http.content import parse_media_type
from toolpost.schema.json_values import AnySchema, as_object, is_array, is_object
from toolpost.sources.files import FILE
from toolpost.sources.openapi import models
from toolpost.sources.openapi.markdown import html_to_markdown
from toolpost.sources.openapi.naming import UniqueNames
from toolpost.sources.openapi.references import DocumentRegistry, ResolvedNode
from toolpost.sources.openapi.schemas import SchemaReader

# Keyword for the separators of lists within a list (Swagger 2); OpenAPI 3 has none.
ITEM_DELIMITERS = "x-item-delimiters"
DEEPEST_LIST = 5
_SCALARS = ("string", "number", "integer", "boolean")
_FORM_STYLES = ("form", "spaceDelimited", "pipeDelimited", "deepObject")
BodyFormat = Literal["json", "multipart", "form", "text", "binary", "any"]
_ORDER: tuple[BodyFormat, ...] = ("json", "multipart", "form", "text", "binary", "any")
_ANYTHING = ("*/*", "application/*", "")


class BodyReader:
    """Reader of the request bodies of operations."""

    def __init__(self, registry: DocumentRegistry, schemas: SchemaReader) -> None:
        self._registry = registry
        self._schemas = schemas

    def read(self, body: ResolvedNode | None, names: UniqueNames) -> models.RequestBody | None:
        """Read the body in the preferred media type; None if there is none."""
        target = self._registry.resolve(*body) if body is not None else None
        if target is None or not is_object(target.node):
            return None
        content = target.node.get("content")
        name = choose_media_type(content) if is_object(content) else None
        if name is None or not is_object(content):
            return None
        media = self._registry.resolve(content[name], target.base)
        rules = media.node if media is not None and is_object(media.node) else {}
        description = target.node.get("description")
        schema, parts = self._schema_and_encodings(name, rules, media.base if media is not None else target.base)
        return models.RequestBody(
            argument=names.reserve("body_" if names.is_taken("body") else "body"),
            content_type=name,
            schema=schema,
            required=target.node.get("required") is True,
            description=html_to_markdown(description) if isinstance(description, str) else "",
            parts=parts,
        )

    def _schema_and_encodings(
        self, name: str, media: dict[str, Any], base: str
    ) -> tuple[AnySchema, Mapping[str, models.FieldEncoding]]:
        node = media.get("schema", {})
        match body_format(name):
            case "form" | "multipart":
                return self._form(node, base, media.get("encoding"))
            case "binary":
                return FILE, {}
            case "text":
                return _text_schema(self._schemas.read(node, base), name), {}
            case "any" if self._is_file(node, base):
                return FILE, {}
            case _:
                return self._schemas.read(node, base), {}

    def _form(self, node: Any, base: str, encoding: Any) -> tuple[AnySchema, Mapping[str, models.FieldEncoding]]:
        layers = list(self._object_schemas(ResolvedNode(node, base)))
        if not layers or not _has_fields(layers[0].node):
            if not self._is_file(node, base):
                return {"type": "object"}, {}
            return {"type": "object", "properties": {"file": FILE}}, {"file": models.FieldEncoding(is_file=True)}
        fields = {name: ResolvedNode(field, layer.base) for layer in layers for name, field in _properties(layer.node)}
        encodings = as_object(encoding)
        parts = {name: self._part(field, encodings.get(name)) for name, field in fields.items()}
        files = {name for name, part in parts.items() if part.is_file}
        non_default = {name: part for name, part in parts.items() if part != models.FieldEncoding()}
        if not files:
            return self._schemas.read(node, base), non_default
        schemas = [self._with_files(layer, files) for layer in layers]
        return schemas[0] if len(schemas) == 1 else {"type": "object", "allOf": schemas}, non_default

    def _object_schemas(self, target: ResolvedNode) -> Iterator[ResolvedNode]:
        """Yield the object schemas of a form: itself and its `allOf` members, each once."""
        seen: set[int] = set()
        waiting = [target]
        while waiting:
            schema = self._registry.resolve(*waiting.pop())
            if schema is None or not is_object(schema.node) or id(schema.node) in seen:
                continue
            seen.add(id(schema.node))
            yield schema
            members = schema.node.get("allOf")
            waiting += [ResolvedNode(member, schema.base) for member in reversed(members)] if is_array(members) else []

    def _with_files(self, layer: ResolvedNode, files: set[str]) -> AnySchema:
        """Convert one object schema without `allOf`, with its file fields as FILE."""
        alone = {word: value for word, value in layer.node.items() if word != "allOf"}
        schema = self._schemas.read(alone, layer.base)
        properties = schema.get("properties") if is_object(schema) else None
        if is_object(properties):
            properties.update({name: _file_schema(properties[name]) for name in files & properties.keys()})
        return schema

    def _part(self, field: ResolvedNode, encoding: Any) -> models.FieldEncoding:
        rules = as_object(encoding)
        content_type, style, explode = rules.get("contentType"), rules.get("style"), rules.get("explode")
        style = style if style in _FORM_STYLES else "form"
        is_file = self._is_file(*field, content_type=content_type if isinstance(content_type, str) else None)
        return models.FieldEncoding(
            content_type=content_type if isinstance(content_type, str) else None,
            style=cast("models.Style", style),
            explode=explode if isinstance(explode, bool) else style == "form",
            headers=_headers(rules.get("headers")),
            is_file=is_file,
            item_delimiters=str(rules.get(ITEM_DELIMITERS, "")),
        )

    def _is_file(self, node: Any, base: str, *, content_type: str | None = None, depth: int = 0) -> bool:
        target = self._registry.resolve(node, base)
        if target is None or not is_object(target.node):
            return False
        node = target.node
        if node.get("type") == "array":
            inner = node.get("items") if depth < DEEPEST_LIST else None
            return self._is_file(inner, target.base, content_type=content_type, depth=depth + 1)
        kind = node.get("type", "string")
        if kind in ("file", "binary"):
            return True
        if kind not in ("string", ["string"], ["string", "null"]) or "contentEncoding" in node:
            return False
        if node.get("format") in ("binary", "file"):
            return True
        named = content_type or node.get("contentMediaType")
        return isinstance(named, str) and all(body_format(one) == "binary" for one in named.split(","))


def _has_fields(node: dict[str, Any]) -> bool:
    kind = node.get("type", "object")
    return kind == "object" or (is_array(kind) and "object" in kind)


def _properties(node: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    properties = node.get("properties")
    return iter(properties.items() if is_object(properties) else ())


def _file_schema(schema: AnySchema) -> JsonSchema:
    if not is_object(schema):
        return FILE
    if schema.get("type") == "array":
        return {**schema, "items": FILE}
    description = schema.get("description")
    return {**FILE, "description": f"{description}\n{FILE['description']}"} if description else FILE


def _text_schema(schema: AnySchema, name: str) -> AnySchema:
    """Return the schema of a text body: scalars, lines, YAML values, or a string."""
    if is_object(schema) and schema.get("type") in _SCALARS:
        return schema
    match parse_media_type(name).kind:
        case "yaml":
            return {"anyOf": [schema, {"type": "string"}]}
        case "lines":
            return {"anyOf": [{"type": "array"}, {"type": "string"}]}
        case _:
            description = schema.get("description") if is_object(schema) else None
            return {"type": "string", **({"description": description} if description else {})}


def _headers(declared: Any) -> dict[str, str]:
    """Return the headers of a form field with a constant or default value."""
    headers: dict[str, str] = {}
    for name, header in declared.items() if is_object(declared) else ():
        schema = header.get("schema") if is_object(header) else None
        value = (schema.get("const") or schema.get("default")) if is_object(schema) else None
        if isinstance(value, str) and name.lower() != "content-type":
            headers[name] = value
    return headers


def choose_media_type(names: Iterable[str]) -> str | None:
    """Choose a media type: JSON, multipart, form, text, bytes, anything, in this order."""
    return min(names, key=_rank, default=None)


def _rank(name: str) -> tuple[int, int]:
    form = body_format(name)
    if form != "json":
        return _ORDER.index(form), 0
    # Of the patch formats, only a merge patch has the shape of the document.
    return 0, {"application/json": 0, "application/merge-patch+json": 1}.get(parse_media_type(name).essence, 2)


def body_format(name: str) -> BodyFormat:
    """Return the format of a media type: value, form, text or bytes."""
    media_type = parse_media_type(name)
    if media_type.essence in _ANYTHING:
        return "any"
    match media_type.kind:
        case "json" | "multipart" | "form" | "binary":
            return media_type.kind
        case _:
            return "text"
