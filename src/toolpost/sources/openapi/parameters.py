"""The parameters of an operation: merged, named, with the style that holds where they are sent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolpost.schema.jsontypes import is_array, is_object
from toolpost.sources.openapi.description import as_markdown
from toolpost.sources.openapi.media_choice import preferred
from toolpost.sources.openapi.naming import Names, argument_name
from toolpost.sources.openapi.operation import Parameter
from toolpost.sources.openapi.references import Target
from toolpost.sources.openapi.upgrade import ITEM_DELIMITERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from toolpost.schema.jsontypes import AnySchema
    from toolpost.sources.openapi.operation import Location, Style
    from toolpost.sources.openapi.references import Library
    from toolpost.sources.openapi.schemas import SchemaReader

# In the order in which a name goes to the first that wants it.
_LOCATIONS: tuple[Location, ...] = ("path", "query", "header", "cookie")
_PLACES = ("query", "path", "header", "cookie")
_SWAGGER_PLACES = ("query", "path", "header", "formData", "body")
_WHOLE_QUERY = "querystring"
_STYLES: dict[Location, tuple[Style, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
# OpenAPI 3 §4.8.12.2: what a document says about these headers is ignored; they belong to the body and to the caller.
_NOT_PARAMETERS = frozenset({"accept", "content-type", "authorization"})
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TEMPLATE = re.compile(r"\{([^{}]+)\}")


class Carrier(NamedTuple):
    """How the value of a parameter is written: its schema, and a media type if it is a document of its own."""

    schema: AnySchema
    content_type: str | None


class Listing(NamedTuple):
    """Where parameters are listed: the operation in words, and the places that its dialect has for them."""

    operation: str
    places: tuple[str, ...]

    @classmethod
    def of(cls, method: str, path: str, *, is_swagger: bool) -> Listing:
        return cls(f"{method.upper()} {path}", _SWAGGER_PLACES if is_swagger else _PLACES)


def merged(lists: Iterable[Target], library: Library, listing: Listing, problems: list[str]) -> list[Target]:
    """All parameters of the lists, the references among them followed; the first of the same name and place wins."""
    found: dict[tuple[str, str], Target] = {}
    for listed, base in lists:
        for given in listed if is_array(listed) else ():
            target = library.resolved(given, base)
            node: dict[str, Any] = target.node if target is not None and is_object(target.node) else {}
            fault = _fault(node, listing.places) if "name" in node else f"a parameter is left out: {_nameless(given)}"
            if target is None or fault:
                problems.append(f"{listing.operation}: {fault}")
            else:
                found.setdefault((node["in"], node["name"]), target)
    return list(found.values())


def _fault(node: dict[str, Any], places: tuple[str, ...]) -> str:
    """Why a parameter cannot be sent; empty where it can."""
    name, place = node["name"], node.get("in")
    if not isinstance(name, str) or not name.strip():
        return "a parameter is left out: its name is no text"
    if place is None:
        return f"parameter {name[:100]!r} does not say what it is `in` ({', '.join(places)})"
    if place not in (*places, _WHOLE_QUERY):
        return f"parameter {name[:100]!r} is in {str(place)[:100]!r}, which is no place ({', '.join(places)})"
    if place == "header" and not _HEADER_NAME.fullmatch(name):
        return f"a parameter is left out: no header can be named {name[:100]!r}"
    return ""


def _nameless(given: Any) -> str:
    reference = given.get("$ref") if is_object(given) else None
    return f"the reference {str(reference)[:200]!r} leads nowhere" if reference else "it has no name"


class ParameterReader:
    """Reads the parameters of operations."""

    def __init__(self, library: Library, schemas: SchemaReader, problems: list[str]) -> None:
        self._library = library
        self._schemas = schemas
        self._problems = problems

    def read(self, path: str, found: Sequence[Target], names: Names) -> tuple[Parameter, ...]:
        """The parameters in the document's order; every placeholder of the path has one, declared or not.

        Templates that mean several segments write `{+name}` or `{name*}`, and the parameter may go by either name.
        """
        placeholders = {written: written.strip("+*") for written in _TEMPLATE.findall(path.partition("#")[0])}
        sent = [target for target in self._spread(found) if _is_sent(target.node, placeholders)]
        declared = {target.node["name"] for target in sent if target.node["in"] == "path"}
        sent += [_undeclared(name) for written, name in placeholders.items() if declared.isdisjoint((written, name))]
        arguments = _arguments(sent, names)
        return tuple(self._parameter(target, arguments[id(target.node)]) for target in sent)

    def _spread(self, found: Sequence[Target]) -> Iterator[Target]:
        """The parameters one by one; a whole query string that is a form is as many as it has fields."""
        for target in found:
            if target.node.get("in") == _WHOLE_QUERY:
                yield from self._fields(target)
            else:
                yield target

    def _fields(self, target: Target) -> Iterator[Target]:
        content = target.node.get("content")
        media = self._library.resolved(next(iter(content.values()), None) if is_object(content) else None, target.base)
        form = media.node.get("schema") if media is not None and is_object(media.node) else None
        schema = self._library.resolved(form, media.base if media is not None else target.base)
        rules: dict[str, Any] = schema.node if schema is not None and is_object(schema.node) else {}
        properties, required = rules.get("properties"), rules.get("required")
        if schema is None or not is_object(properties):
            name = target.node["name"]
            self._problems.append(f"the query string {name[:100]!r} is left out: only a form with named fields is sent")
            return
        for name, node in properties.items():
            needed = is_array(required) and name in required
            yield Target({"name": name, "in": "query", "schema": node, "required": needed}, schema.base)

    def _parameter(self, target: Target, argument: str) -> Parameter:
        node = target.node
        location = cast("Location", node["in"])
        carrier = self._carrier(node, target.base)
        style = _style(node, location)
        explode = node.get("explode")
        description = node.get("description")
        return Parameter(
            name=node["name"],
            location=location,
            argument=argument,
            schema=carrier.schema,
            required=location == "path" or node.get("required") is True,
            description=as_markdown(description) if isinstance(description, str) else "",
            style=style,
            explode=explode if isinstance(explode, bool) else style == "form",
            allow_reserved=node.get("allowReserved") is True,
            allow_empty=node.get("allowEmptyValue") is True,
            content_type=carrier.content_type,
            deprecated=node.get("deprecated") is True,
            item_delimiters=str(node.get(ITEM_DELIMITERS, "")),
        )

    def _carrier(self, node: dict[str, Any], base: str) -> Carrier:
        content = node.get("content")
        if not is_object(content) or not content:
            return Carrier(self._schemas.read(node.get("schema", {}), base), None)
        media_type = preferred(content)
        media = content[media_type] if media_type is not None else None
        schema = self._schemas.read(media.get("schema", {}), base) if is_object(media) else {}
        return Carrier(schema, media_type)


def _is_sent(node: dict[str, Any], placeholders: Mapping[str, str]) -> bool:
    location, name = node.get("in"), node["name"]
    if location == "path":
        return name in placeholders or name in placeholders.values()
    if location == "header":
        return name.lower() not in _NOT_PARAMETERS
    return location in ("query", "cookie")


def _undeclared(name: str) -> Target:
    return Target({"name": name, "in": "path", "required": True, "schema": {"type": "string"}}, "")


def _arguments(sent: Sequence[Target], names: Names) -> dict[int, str]:
    """What the tool calls each parameter, by the node it was read from."""
    arguments: dict[int, str] = {}
    for location in _LOCATIONS:
        for node in (target.node for target in sent if target.node["in"] == location):
            wanted = argument_name(node["name"])
            arguments[id(node)] = names.take(f"{wanted}_{location}" if names.is_taken(wanted) else wanted)
    return arguments


def _style(node: dict[str, Any], location: Location) -> Style:
    styles = _STYLES[location]
    given = node.get("style")
    return given if given in styles else styles[0]
