"""Drafts of JSON Schema."""

from toolpost.contracts.spec import JsonSchema

DEFAULT_DRAFT = "https://json-schema.org/draft/2020-12/schema"

_DRAFTS = {
    "json-schema.org/draft-04/schema": "http://json-schema.org/draft-04/schema#",
    "json-schema.org/draft-06/schema": "http://json-schema.org/draft-06/schema#",
    "json-schema.org/draft-07/schema": "http://json-schema.org/draft-07/schema#",
    "json-schema.org/draft/2019-09/schema": "https://json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft/2020-12/schema": DEFAULT_DRAFT,
}
_KNOWN = frozenset(_DRAFTS.values())


def normalize_draft(schema: JsonSchema) -> JsonSchema:
    """Return the schema, with an unknown or unusually spelled `$schema` replaced by a known one."""
    declared = schema.get("$schema")
    if not isinstance(declared, str) or declared in _KNOWN:
        return schema
    # A private dialect (such as OpenAPI's) is close to the current draft, and is never fetched.
    bare = declared.removeprefix("https://").removeprefix("http://").rstrip("#")
    return {**schema, "$schema": _DRAFTS.get(bare, DEFAULT_DRAFT)}
