"""Build tool records (`ToolSpec`): effects from annotations, tools declared by an operator, hidden text removed.

Claims are statements of a source about its tools, such as MCP annotations. Facts that a standard defines, such as the
HTTP method or the kind of a GraphQL operation, are not claims.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from toolpost.catalog.names import canonical_name
from toolpost.contracts.spec import SafetyProfile, ToolCategory, ToolSpec, destructive_of, replay_of
from toolpost.schema.hidden_text import (
    clean_schema,
    clean_text,
    clean_value,
    find_hidden,
    hidden_excerpt,
    may_hide,
    may_hide_characters,
    may_hide_in,
)
from toolpost.schema.json_values import as_object
from toolpost.schema.shared_definitions import SharedDefinitions, any_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.config import DeclaredTool
    from toolpost.contracts.spec import JsonSchema, ReplayClass, SideEffects, ToolTarget

_OPEN_SCHEMA_KEYWORDS = frozenset(
    {"$ref", "additionalProperties", "allOf", "anyOf", "if", "oneOf", "patternProperties", "unevaluatedProperties"}
)

HIDDEN = "hidden_characters"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "QUERY"})
"""The HTTP methods that change nothing (RFC 9110 section 9.2.1, and QUERY)."""
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def closed_schema(schema: JsonSchema) -> JsonSchema:
    """Add `additionalProperties: false` to a schema, unless the schema allows more or has no properties."""
    # An argument that the schema does not name would be lost, or sent to an unexpected place.
    if "properties" not in schema or _OPEN_SCHEMA_KEYWORDS & schema.keys():
        return schema
    return {**schema, "additionalProperties": False}


def declared_spec(
    source: str,
    name: str,
    *,
    tool: DeclaredTool,
    kind: str,
    category: ToolCategory = ToolCategory.NETWORK,
    extra: Mapping[str, Any] | None = None,
    target: ToolTarget | None = None,
) -> ToolSpec:
    """Build the record of a declared tool; `kind` names the kind of its source and becomes a tag."""
    schema = tool.input_schema if "type" in tool.input_schema else {"type": "object", **tool.input_schema}
    return ToolSpec(
        name=canonical_name(source, name),
        description=tool.description,
        category=category,
        input_schema=schema,
        output_schema=tool.output_schema,
        side_effects=tool.side_effects,
        replay=tool.replay or replay_of(tool.side_effects),
        safety=SafetyProfile(
            network=True, destructive=destructive_of(tool.side_effects, tool.destructive), open_world=True
        ),
        timeout_s=tool.timeout_s,
        tags=tuple(dict.fromkeys((kind, source, *tool.tags))),
        source=source,
        origin=source,
        extra={"source": kind, "namespace": source, "remote_name": name, **(extra or {})},
        target=target,
    )


def has_plain_schemas(spec: ToolSpec, shared: SharedDefinitions | None) -> bool:
    """Return whether the schemas of a tool are known to be plain: nothing has to be searched in them."""
    if shared is None or not shared.is_plain(spec.input_schema):
        return False
    return spec.output_schema is None or shared.is_plain(spec.output_schema)


def clean_spec(spec: ToolSpec, shared: SharedDefinitions | None = None) -> ToolSpec:
    """Remove hidden characters from the texts of a tool for models; `extra["hidden_characters"]` lists the places.

    Arguments are still validated against the original schema: only its descriptions change. If property names or
    values contain hidden characters, the model gets a cleaned view (`model_schema`).
    """
    if has_plain_schemas(spec, shared) and not may_hide_characters(_texts(spec)):
        return spec
    excerpts = _hidden_characters(spec, shared)
    if not excerpts:
        return spec
    shown = spec.input_schema if spec.model_schema is None else spec.model_schema
    return replace(
        spec,
        description=clean_text(spec.description).text,
        input_schema=clean_schema(spec.input_schema),
        output_schema=clean_schema(spec.output_schema),
        model_schema=clean_value(shown)[0],
        tags=tuple(clean_text(tag).text for tag in spec.tags),
        extra={**spec.extra, HIDDEN: excerpts},
    )


def _hidden_characters(spec: ToolSpec, shared: SharedDefinitions | None) -> list[str]:
    """Return the places with hidden characters, each with an excerpt in which they are escaped."""
    remote = spec.extra.get("remote_name")
    texts = {"name": remote if isinstance(remote, str) else "", "description": spec.description}
    schemas = {"input schema": spec.input_schema, "output schema": spec.output_schema}
    excerpts = {place: hidden_excerpt(text) for place, text in texts.items()}
    excerpts |= {place: _in_schema(schema, shared) for place, schema in schemas.items() if schema is not None}
    excerpts["tags"] = next((text for tag in spec.tags if (text := hidden_excerpt(tag))), "")
    return [f"{place}: {text}" for place, text in excerpts.items() if text]


def _texts(spec: ToolSpec) -> str:
    """Join the texts of a record that models read."""
    remote = spec.extra.get("remote_name")
    return "".join((spec.description, remote if isinstance(remote, str) else "", *spec.tags))


def _in_schema(schema: JsonSchema, shared: SharedDefinitions | None) -> str:
    text = None if shared is None else shared.text(schema)
    if text is not None and not may_hide_in(text):
        return ""
    return hidden_excerpt(find_hidden(schema)) if any_part(schema, may_hide, shared) else ""


class Claims(NamedTuple):
    """Hints of a source about one of its tools; None if the source gives no hint."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


class Effects(NamedTuple):
    """Side effects, replay class and safety profile of a tool's record."""

    side_effects: SideEffects
    replay: ReplayClass
    safety: SafetyProfile


def read_annotations(annotations: Any) -> Claims:
    """Read the annotations of an MCP tool; ignore hints that are not booleans."""
    hints = as_object(annotations)
    return Claims(*[hint if isinstance(hint := hints.get(name), bool) else None for name in _HINTS])


@cache
def effects_from_claims(claims: Claims, *, trusted: bool, remote: bool) -> Effects:
    """Derive a tool's effects from claims; claims of a source without `trust` can only make the effects stricter.

    A tool that claims to be both read-only and destructive is destructive, trusted or not.
    """
    network = remote or claims.open_world is True
    if claims.read_only and claims.destructive:
        return Effects("external", "unsafe", SafetyProfile(network=network, destructive=True, open_world=True))
    if not trusted:
        destructive = True if claims.destructive else None
        return Effects("external", "unsafe", SafetyProfile(network=network, destructive=destructive, open_world=True))
    open_world = claims.open_world is not False
    if claims.read_only:
        safety = SafetyProfile(network=network, destructive=False, open_world=open_world and network)
        return Effects("read", "idempotent", safety)
    replay: ReplayClass = "idempotent" if claims.idempotent else "unsafe"
    safety = SafetyProfile(network=network, destructive=claims.destructive, open_world=open_world)
    return Effects("external", replay, safety)


def effects_of_method(method: str) -> Effects:
    """Return the effects of an HTTP method (RFC 9110 section 9.2); whether POST, PUT and PATCH destroy is unknown."""
    if method in SAFE_METHODS:
        return Effects("read", "idempotent", SafetyProfile(network=True, destructive=False, open_world=True))
    replay = replay_of("external", idempotent=method in ("PUT", "DELETE"))
    destructive = True if method == "DELETE" else None
    return Effects("external", replay, SafetyProfile(network=True, destructive=destructive, open_world=True))


def read_claims(spec: ToolSpec) -> Claims:
    """Read the claims in a tool's record; only MCP sources have claims."""
    return read_annotations(spec.extra.get("annotations"))


def describe_claims(claims: Claims) -> str:
    """Describe claims for users; empty without claims."""
    words = {
        "reads only": claims.read_only is True,
        "destructive": claims.destructive is True,
        "destroys nothing": claims.destructive is False,
        "repeats safely": claims.idempotent is True,
    }
    return ", ".join(text for text, claimed in words.items() if claimed)


def trust_loosens(claims: Claims) -> bool:
    """Return whether trusting the source would loosen the effects: calls without approval, or with retries."""
    trusted, untrusted = (effects_from_claims(claims, trusted=trust, remote=True) for trust in (True, False))
    return trusted != untrusted
