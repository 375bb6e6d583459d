"""A document that asks for every place, style and media type with schemas narrow enough that a wrong request shows.

Left out is what Prism 5.14 itself gets wrong: it crashes on commas in a path, splits spaceDelimited at a literal `%20`
after it has decoded it, and keeps only the last of a form's repeated fields.
"""

from typing import Any

NUMBERS = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
POINT = {
    "type": "object",
    "required": ["x", "y"],
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
    "additionalProperties": False,
}
JSON = {"application/json": {"schema": POINT}}
FILE = {"type": "string", "format": "binary"}
TREE = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "size": {"oneOf": [{"type": "integer"}, {"type": "string", "enum": ["large"]}]},
        "note": {"type": "string", "nullable": True},
        "below": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}},
    },
    "additionalProperties": False,
}


def answer(content: dict[str, Any] | None = None, status: str = "200") -> dict[str, Any]:
    content = {"application/json": {"example": {"ok": True}}} if content is None else content
    return {status: {"description": "told", **({"content": content} if content else {})}}


def parameter(name: str, location: str, schema: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": location, "required": True, "schema": schema, **more}


def getting(*parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"get": {"parameters": list(parameters), "responses": answer(), **more}}


def posting(content: dict[str, Any], *, required: bool = True, **more: Any) -> dict[str, Any]:
    body = {"required": required, "content": content}
    return {"post": {"requestBody": body, "responses": answer(), **more}}


def in_path(style: str, schema: Any, *, explode: bool) -> dict[str, Any]:
    return getting(parameter("p", "path", schema, style=style, explode=explode))


FORM = {
    "type": "object",
    "required": ["name", "n"],
    "properties": {
        "name": {"type": "string", "enum": ["Ann & Ü"]},
        "n": NUMBERS,
        "deep": POINT,
        "on": {"type": "boolean"},
    },
    "additionalProperties": False,
}
ENCODING = {"n": {"style": "form", "explode": False}, "deep": {"style": "deepObject", "explode": True}}
PARTS = {
    "type": "object",
    "required": ["name", "file"],
    "properties": {"name": {"type": "string", "enum": ["Ann & Ü"]}, "file": FILE},
}
QUERY_STYLES = {
    "/query/form": parameter("q", "query", NUMBERS),
    "/query/comma": parameter("q", "query", NUMBERS, explode=False),
    "/query/pipe": parameter("q", "query", NUMBERS, style="pipeDelimited", explode=False),
    "/query/object": parameter("q", "query", POINT, explode=True),
    "/query/deep": parameter("q", "query", POINT, style="deepObject", explode=True),
    "/query/flag": parameter("q", "query", {"type": "boolean"}),
    "/query/enum": parameter("q", "query", {"type": "string", "enum": ["a b&c", "é"]}),
    "/query/number": parameter("q", "query", {"type": "number", "maximum": 0.001}),
}
DOCUMENT: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Contract", "version": "1"},
    "security": [{"header": []}],
    "paths": {
        "/path/label/{p}": in_path("label", NUMBERS, explode=True),
        "/path/matrix/{p}": in_path("matrix", NUMBERS, explode=True),
        "/path/object/{p}": in_path("matrix", POINT, explode=True),
        "/path/enum/{p}": in_path("simple", {"type": "string", "enum": ["a b&c?", "é#"]}, explode=False),
        **{path: getting(asked) for path, asked in QUERY_STYLES.items()},
        "/header": getting(parameter("X-Numbers", "header", NUMBERS)),
        "/optional": getting({**parameter("q", "query", {"type": "integer"}), "required": False}),
        "/body/tree": posting({"application/json": {"schema": {"$ref": "#/components/schemas/Tree"}}}),
        "/body/list": posting({"application/json": {"schema": NUMBERS}}),
        "/body/maybe": posting(JSON, required=False),
        "/body/vendor": posting({"application/vnd.x+json": {"schema": POINT}}),
        "/body/form": posting({"application/x-www-form-urlencoded": {"schema": FORM, "encoding": ENCODING}}),
        "/body/parts": posting({"multipart/form-data": {"schema": PARTS}}),
        "/body/text": posting({"text/plain": {"schema": {"type": "string", "enum": ["plain"]}}}),
        "/body/bytes": posting({"application/octet-stream": {"schema": FILE}}),
        "/body/xml": posting({"application/xml": {"schema": {"type": "string"}}}),
        "/body/named": {
            "post": {**posting(JSON)["post"], "parameters": [parameter("body", "query", {"type": "integer"})]}
        },
        "/answer/vendor": {"get": {"responses": answer({"application/vnd.api+json": {"example": {"data": []}}})}},
        "/answer/text": {"get": {"responses": answer({"text/plain": {"example": "plain"}})}},
        "/answer/nothing": {"delete": {"responses": answer({}, "204")}},
        "/answer/head": {"head": {"responses": answer({})}},
        "/answer/two": {
            "get": {"responses": answer({"application/xml": {"example": "<a/>"}, "application/json": {"example": [1]}})}
        },
        "/answer/limit": {"get": {"responses": answer(status="429")}},
        "/key/query": getting(security=[{"query": []}]),
        "/key/cookie": getting(security=[{"cookie": []}]),
        "/key/bearer": getting(security=[{"bearer": []}]),
        "/key/basic": getting(security=[{"basic": []}]),
        "/key/both": getting(security=[{"query": [], "bearer": []}]),
        "/key/none": getting(security=[]),
    },
    "components": {
        "schemas": {"Tree": TREE},
        "securitySchemes": {
            "header": {"type": "apiKey", "in": "header", "name": "X-Key"},
            "query": {"type": "apiKey", "in": "query", "name": "key"},
            "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
            "bearer": {"type": "http", "scheme": "bearer"},
            "basic": {"type": "http", "scheme": "basic"},
        },
    },
}
