"""Whether a schema is so small and plain that nothing about its size or references can be wrong.

Most tools have such schemas, and this look at their text takes a tenth of a full check.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from toolpost.schema.jsontypes import is_object

if TYPE_CHECKING:
    from toolpost.contracts.spec import JsonSchema

_encode = json.JSONEncoder(allow_nan=False).encode
_LONGEST = 65_536
# Each object or list opens a bracket, so this bounds depth and the number of schemas at once; and with few
# references even the worst way to nest them repeats no schema more than 3 ** (12 / 3) times.
_MOST_BRACKETS = 64
_MOST_REFERENCES = 12
_REFERENCE = re.compile(r'"\$ref": "([^"]*)"')
_POINTER = re.compile(r"#/(\$defs|definitions)/([\w.-]+)", re.ASCII)
_SPECIAL = re.compile(r'"\$(?:id|anchor|dynamicAnchor|dynamicRef|recursiveRef|recursiveAnchor|schema)"')


def is_plain(schema: JsonSchema) -> bool:
    """Whether it is short and shallow, and its few references lead to definitions of its own."""
    try:
        text = _encode(schema)
    except (TypeError, ValueError, RecursionError):
        return False
    if len(text) > _LONGEST or text.count("{") + text.count("[") > _MOST_BRACKETS or _SPECIAL.search(text):
        return False
    references = _REFERENCE.findall(text)
    return len(references) <= _MOST_REFERENCES and all(_leads(schema, reference) for reference in references)


def _leads(schema: JsonSchema, reference: str) -> bool:
    found = _POINTER.fullmatch(reference)
    if found is None:
        return False
    definitions = schema.get(found[1])
    return is_object(definitions) and isinstance(definitions.get(found[2]), dict)
