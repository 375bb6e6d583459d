"""Which schemas are fit to be registered: legal, of bounded size, and closed in themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jsonschema_rs

from toolpost.contracts.errors import ToolSchemaError
from toolpost.schema.drafts import with_known_draft
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.schema.plainness import is_plain
from toolpost.schema.subschemas import Document, Place, Subschema, references, subschemas
from toolpost.schema.values import Link, members

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolpost.contracts.spec import JsonSchema

MAX_DEPTH = 64
MAX_NODES = 100_000
MAX_WORK = 1_000_000
# The engine recurses on the C stack; a longer chain of schemas for one value could overflow it.
MAX_CHAIN = 100

_SCALARS = (str, int, float, type(None))


def _refuse_retrieval(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")


# Without a registry of its own the check of an unknown `$schema` would go out to the network.
_NO_NETWORK = jsonschema_rs.Registry([], retriever=_refuse_retrieval)


def check_schema(schema: object, *, tool_name: str, role: Literal["input", "output"] = "input") -> None:
    """Refuse a schema that is illegal, too deep, too large, open to the outside, or explosive."""
    if isinstance(schema, bool):
        return
    if not is_object(schema):
        raise _refusal(tool_name, "#", f"a schema must be an object or a boolean, not {type(schema).__name__}")
    plain = is_plain(schema)
    if not plain:
        _check_size(schema, tool_name)
    if role == "input":
        _check_takes_object(schema, tool_name)
    _check_legal(schema, tool_name)
    if plain:
        return
    document = Document(schema)
    if _check_references(document, tool_name):
        _check_weight(document, tool_name)


def _refusal(tool_name: str, where: str, problem: str) -> ToolSchemaError:
    return ToolSchemaError(f"Schema of tool {tool_name!r} at {where}: {problem}", tool_name=tool_name)


def _check_size(schema: JsonSchema, tool_name: str) -> None:
    """Count everything in the document, also under keywords that are not schemas."""
    level: list[tuple[Link | None, Any]] = [(None, schema)]
    nodes = 0
    for _ in range(MAX_DEPTH):
        below: list[tuple[Link | None, Any]] = []
        for link, value in level:
            nodes += len(value)
            if nodes > MAX_NODES:
                raise _refusal(tool_name, "#", f"more than {MAX_NODES:,} values")
            below.extend(_containers(link, value, tool_name))
        if not below:
            return
        level = below
    raise _refusal(tool_name, _pointer(level[0][0]), f"nested deeper than {MAX_DEPTH} levels")


def _pointer(link: Link | None) -> str:
    return "/".join(["#", *(str(key)[:80] for key in Link.path(link)[:30])])


def _containers(link: Link | None, value: Any, tool_name: str) -> Iterator[tuple[Link, Any]]:
    for key, member in members(value):
        if is_object(member) or is_array(member):
            yield Link(link, key), member
        elif not isinstance(member, _SCALARS):
            raise _refusal(tool_name, _pointer(Link(link, key)), f"{type(member).__name__} is not JSON")


def _check_takes_object(schema: JsonSchema, tool_name: str) -> None:
    kind = schema.get("type", "object")
    kinds = kind if is_array(kind) else [kind]
    if "object" not in kinds:
        raise _refusal(tool_name, "#/type", f'arguments are an object, so "type" must be "object", not {kind!r}')


def _check_legal(schema: JsonSchema, tool_name: str) -> None:
    try:
        jsonschema_rs.meta.validate(with_known_draft(schema), registry=_NO_NETWORK)
    except jsonschema_rs.ValidationError as exc:
        where = "/".join(["#", *map(str, exc.instance_path)])
        raise _refusal(tool_name, where, exc.message[:300]) from None
    except (ValueError, jsonschema_rs.ReferencingError) as exc:
        raise _refusal(tool_name, "#", str(exc)[:300]) from None


def _check_references(document: Document, tool_name: str) -> bool:
    """Whether there are references at all; each must lead somewhere within the document."""
    found = False
    stack: list[tuple[str, JsonSchema]] = [("#", document.root)]
    while stack:
        where, schema = stack.pop()
        for reference in references(schema):
            found = True
            if document.target(reference, schema) is None:
                raise _refusal(tool_name, where, _why_unusable(reference))
        stack.extend((_below(where, inner), inner.schema) for inner in subschemas(schema))
    return found


def _why_unusable(reference: str) -> str:
    shown = reference[:200]
    if reference.startswith("#"):
        return f"reference {shown!r} points at nothing in this document"
    return f"reference {shown!r} leaves the document and is never fetched; put its target under $defs"


def _below(where: str, inner: Subschema) -> str:
    key = str(inner.key)[:80]
    if inner.keyword == "$ref":
        return key
    return f"{where}/{inner.keyword}" if inner.key is None else f"{where}/{inner.keyword}/{key}"


class Weight(NamedTuple):
    """What checking one value against a schema can cost at most.

    `work` counts how often parts of it may be applied to the same value, `chain` how many
    lie on top of each other there, `height` how many in all. A recursive part counts once.
    """

    work: int
    chain: int
    height: int
    recursive: bool


@dataclass(slots=True)
class _Frame:
    """One schema that is being weighed, with what its parts have added so far."""

    where: str
    schema: JsonSchema
    place: Place
    parts: Iterator[Subschema]
    here: int = 1
    below: int = 0
    chain: int = 0
    height: int = 0

    def add(self, place: Place, weight: Weight) -> None:
        """Take in one part: those for the same value add up, of those for its members the heaviest counts."""
        self.height = max(self.height, weight.height)
        if place == "here":
            self.here += weight.work
            self.chain = max(self.chain, weight.chain)
        else:
            self.below = max(self.below, weight.work)

    def weight(self) -> Weight:
        """The total, cut off above the limits so that a bomb cannot grow huge integers."""
        work = min(self.here + self.below, MAX_WORK + 1)
        return Weight(work, self.chain + 1, self.height + 1, recursive=False)


_ONCE = Weight(1, 1, 1, recursive=True)


def _check_weight(document: Document, tool_name: str) -> None:
    for where, weight in _weights(document):
        if weight.work > MAX_WORK:
            raise _refusal(tool_name, where, f"expands to more than {MAX_WORK:,} schemas")
        if weight.chain > MAX_CHAIN:
            raise _refusal(tool_name, where, f"a chain of more than {MAX_CHAIN} schemas for one value")


def weigh(document: Document) -> Weight:
    """The weight of a whole schema."""
    total, recursive = _ONCE, False
    for _, total in _weights(document):
        recursive = recursive or total.recursive
    return total._replace(recursive=recursive)


def _weights(document: Document) -> Iterator[tuple[str, Weight]]:
    """Each schema's weight, parts first and the root last; a weight marked recursive is a way back up."""
    done: dict[int, Weight] = {}
    stack = [_frame(document, "#", document.root, "here")]
    unfinished = {id(document.root)}
    while stack:
        frame = stack[-1]
        part = next(frame.parts, None)
        if part is None:
            stack.pop()
            unfinished.discard(id(frame.schema))
            done[id(frame.schema)] = weight = frame.weight()
            if stack:
                stack[-1].add(frame.place, weight)
            yield frame.where, weight
        elif id(part.schema) in unfinished:
            frame.add(part.place, _ONCE)
            yield frame.where, _ONCE
        elif id(part.schema) in done:
            frame.add(part.place, done[id(part.schema)])
        else:
            unfinished.add(id(part.schema))
            stack.append(_frame(document, _below(frame.where, part), part.schema, part.place))


def _frame(document: Document, where: str, schema: JsonSchema, place: Place) -> _Frame:
    return _Frame(where, schema, place, document.applied(schema))
