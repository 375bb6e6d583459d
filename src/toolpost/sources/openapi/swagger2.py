"""Convert the parameters, bodies and responses of Swagger 2 to those of OpenAPI 3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.openapi.references import ResolvedNode
from toolpost.sources.openapi.request_bodies import DEEPEST_LIST, ITEM_DELIMITERS, body_format

_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_BYTES = "application/octet-stream"
# Keywords of a parameter that do not belong to its schema.
_OF_PARAMETER = frozenset({"name", "in", "description", "required", "collectionFormat", "allowEmptyValue", "schema"})
_PARAMETER_KEYS = ("name", "in", "description", "required", "allowEmptyValue")
# `tsv` has no counterpart in OpenAPI 3.
_SWAGGER_STYLES: dict[str, dict[str, Any]] = {
    "csv": {"explode": False},
    "tsv": {"explode": False},
    "ssv": {"style": "spaceDelimited", "explode": False},
    "pipes": {"style": "pipeDelimited", "explode": False},
    "multi": {"explode": True},
}
_DELIMITERS = {"ssv": " ", "tsv": "\t", "pipes": "|"}


def convert_inputs(swagger_parameters: Sequence[ResolvedNode], consumes: Sequence[str]) -> OperationInputs:
    """Separate the parameters from the body and from form fields, which are parameters in Swagger 2."""
    fields = [target for target in swagger_parameters if target.node.get("in") == "formData"]
    whole = next((target for target in swagger_parameters if target.node.get("in") == "body"), None)
    others = [target for target in swagger_parameters if target.node.get("in") not in ("formData", "body")]
    parameters = [ResolvedNode(_parameter(target.node), target.base) for target in others]
    if whole is not None:
        return OperationInputs(parameters, ResolvedNode(_body(whole.node, consumes), whole.base))
    return OperationInputs(parameters, ResolvedNode(_form(fields, consumes), fields[0].base) if fields else None)


def _parameter(node: dict[str, Any]) -> dict[str, Any]:
    common: dict[str, Any] = {word: node[word] for word in _PARAMETER_KEYS if word in node}
    return {**common, "schema": _schema(node), **_swagger_style(node)}


def _schema(node: dict[str, Any]) -> dict[str, Any]:
    schema = node.get("schema")
    if is_object(schema):
        return schema
    return {word: value for word, value in node.items() if word not in _OF_PARAMETER}


def _swagger_style(node: dict[str, Any]) -> dict[str, Any]:
    if node.get("type") != "array":
        return {}
    style = _SWAGGER_STYLES.get(str(node.get("collectionFormat", "csv")), {"explode": False})
    inner = "".join(_inner_delimiters(node.get("items")))
    return {**style, ITEM_DELIMITERS: inner} if inner else style


def _inner_delimiters(items: Any) -> Iterator[str]:
    """Yield the delimiters of nested lists, outermost first; nested lists cannot be repeated as `multi`."""
    for _ in range(DEEPEST_LIST):
        if not is_object(items) or items.get("type") != "array":
            return
        yield _DELIMITERS.get(str(items.get("collectionFormat")), ",")
        items = items.get("items")


def _body(node: dict[str, Any], consumes: Sequence[str]) -> dict[str, Any]:
    # Form types apply to form fields only; with a whole body they are a mistake.
    offered = [name for name in consumes if body_format(name) not in ("form", "multipart")] or [_JSON]
    return {
        "description": node.get("description"),
        "required": node.get("required"),
        "content": {name: {"schema": node.get("schema", {})} for name in offered},
    }


def _form(fields: Sequence[ResolvedNode], consumes: Sequence[str]) -> dict[str, Any]:
    nodes = [field.node for field in fields if isinstance(field.node.get("name"), str)]
    schema = {
        "type": "object",
        "properties": {node["name"]: _field(node) for node in nodes},
        "required": [node["name"] for node in nodes if node.get("required") is True],
    }
    encoding = {node["name"]: style for node in nodes if (style := _swagger_style(node))}
    media_type = _form_type(nodes, consumes)
    return {"required": bool(schema["required"]), "content": {media_type: {"schema": schema, "encoding": encoding}}}


def _field(node: dict[str, Any]) -> dict[str, Any]:
    schema = {**_schema(node), "description": node.get("description", "")}
    return {**schema, "type": "string", "format": "binary"} if node.get("type") == "file" else schema


def _form_type(nodes: Sequence[dict[str, Any]], consumes: Sequence[str]) -> str:
    if any(node.get("type") == "file" for node in nodes):
        return _MULTIPART
    kinds = {body_format(name) for name in consumes}
    return _MULTIPART if "multipart" in kinds and "form" not in kinds else _FORM


class OperationInputs(NamedTuple):
    """Parameters and request body of an operation."""

    parameters: list[ResolvedNode]
    body: ResolvedNode | None


def convert_response(node: dict[str, Any], produces: Sequence[str]) -> dict[str, Any]:
    """Convert a response: its schema by media type."""
    schema = node.get("schema")
    if schema is None:
        return {"description": node.get("description")}
    is_file = is_object(schema) and schema.get("type") == "file"
    offered = [name for name in produces if not is_file or body_format(name) != "json"] or [
        _BYTES if is_file else _JSON
    ]
    return {"description": node.get("description"), "content": {name: {"schema": schema} for name in offered}}


def list_media_types(operation: dict[str, Any], document: dict[str, Any], word: str) -> list[str]:
    """Return the media types that an operation consumes or produces: its own list, or the document's."""
    for holder in (operation, document):
        listed = holder.get(word)
        if is_array(listed):
            return [name for name in listed if isinstance(name, str)] or [_JSON]
    return [_JSON]
