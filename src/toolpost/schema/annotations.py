"""Annotations of functions: resolve names in strings, and recognize contexts, raw results and plain JSON types."""

from __future__ import annotations

import re
import types
from collections import abc
from collections.abc import Callable, Iterator
from contextlib import suppress
from inspect import Parameter
from typing import Annotated, Any, Literal, NewType, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import Doc, ReadOnly, TypeAliasType, is_typeddict

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.context import ToolContext
from toolpost.contracts.outcomes import ToolResult

_ATOMS = (str, int, float, bool, type(None), None, Any, object, list, dict, Parameter.empty)
_LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
_DICTS = (dict, abc.Mapping, abc.MutableMapping)
_QUALIFIERS = (Required, NotRequired, ReadOnly)
# Pydantic writes these into the JSON Schema completely: validation by the schema is sufficient.
_CONSTRAINTS = frozenset({"Ge", "Gt", "Le", "Lt", "MultipleOf", "MinLen", "MaxLen"})
_RAW_RESULTS = (ToolOutput, ToolResult, bytes, bytearray, memoryview)
_CONTEXT_NAME = re.compile(r"(Optional\[)?(\w+\.)*ToolContext\]?(\s*\|\s*None)?")
_RESULT_NAME = re.compile(r"\b(ToolOutput|ToolResult)\b")


class UnresolvedError(Exception):
    """An annotation contains a name that does not exist where the function was defined."""


def resolve_annotation(annotation: Any, fn: Callable[..., Any]) -> Any:
    """Return an annotation with the names in its strings resolved."""
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    namespace: dict[str, Any] = getattr(fn, "__globals__", {})
    try:
        return get_type_hints(holder, namespace, _enclosing(fn), include_extras=True)["it"]
    except (NameError, TypeError, AttributeError, SyntaxError) as exc:
        raise UnresolvedError(str(exc)) from None


def _enclosing(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the variables of enclosing functions that a function uses."""
    names: tuple[str, ...] = getattr(getattr(fn, "__code__", None), "co_freevars", ())
    cells: tuple[types.CellType, ...] = getattr(fn, "__closure__", None) or ()
    variables: dict[str, Any] = {}
    for name, cell in zip(names, cells, strict=True):
        with suppress(ValueError):  # an empty cell
            variables[name] = cell.cell_contents
    return variables


def looks_like_context(text: object) -> bool:
    """Return whether an annotation that could not be resolved is spelled like the context."""
    return isinstance(text, str) and _CONTEXT_NAME.fullmatch(text.strip()) is not None


def looks_like_raw_result(text: object) -> bool:
    """Return whether an annotation that could not be resolved is spelled like ToolOutput or ToolResult."""
    return isinstance(text, str) and _RESULT_NAME.search(text) is not None


def is_context(annotation: Any) -> bool:
    """Return whether an annotation is the context, possibly optional."""
    return any(isinstance(member, type) and issubclass(member, ToolContext) for member in _members(annotation))


def is_raw_result(annotation: Any) -> bool:
    """Return whether results are returned unchanged: ToolOutput, ToolResult or bytes."""
    return any(isinstance(member, type) and issubclass(member, _RAW_RESULTS) for member in _members(annotation))


def _members(annotation: Any) -> Iterator[Any]:
    """Yield the alternatives of a union, or the annotation itself."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _members(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation


def annotated_metadata(annotation: Any) -> tuple[Any, ...]:
    """Return the metadata of `Annotated`."""
    return get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()


def description_of(annotation: Any) -> str | None:
    """Return the description in `Annotated[T, "..."]` or `Annotated[T, Doc("...")]`."""
    for note in annotated_metadata(annotation):
        if isinstance(note, str):
            return note
        if isinstance(note, Doc):
            return note.documentation
    return None


def needs_no_conversion(annotation: Any) -> bool:
    """Return whether JSON that fits the schema already has the annotated type."""
    return _is_plain(annotation, frozenset())


def _is_plain(annotation: Any, seen: frozenset[Any]) -> bool:
    if any(annotation is atom for atom in _ATOMS):
        return True
    if isinstance(annotation, NewType):
        return _is_plain(annotation.__supertype__, seen)
    if isinstance(annotation, TypeAliasType):
        return annotation in seen or _is_plain(annotation.__value__, seen | {annotation})
    if is_typeddict(annotation):
        return annotation in seen or _is_plain_typeddict(annotation, seen | {annotation})
    return _is_plain_generic(get_origin(annotation), get_args(annotation), seen)


def _is_plain_typeddict(annotation: Any, seen: frozenset[Any]) -> bool:
    try:
        fields = get_type_hints(annotation, include_extras=True)
    except NameError:
        return False
    return all(_is_plain(field, seen) for field in fields.values())


def _is_plain_generic(origin: Any, args: tuple[Any, ...], seen: frozenset[Any]) -> bool:
    if origin is Annotated:
        return _is_plain(args[0], seen) and all(_is_harmless(note, args[0]) for note in args[1:])
    if origin is Literal:
        return all(type(value) in (str, int, bool, type(None)) for value in args)
    if origin in _DICTS:
        return args[:1] in ((), (str,), (Any,)) and all(_is_plain(arg, seen) for arg in args[1:])
    if origin in (Union, types.UnionType, *_LISTS, *_QUALIFIERS):
        return all(_is_plain(arg, seen) for arg in args)
    return False


def _is_harmless(note: Any, annotation: Any) -> bool:
    """Return whether metadata neither changes the value nor requires more than the schema."""
    if isinstance(note, str | Doc):
        return True
    if not isinstance(note, FieldInfo):
        return _is_constraint(note, annotation)
    renames = note.alias is not None or note.validation_alias is not None
    fills = note.default is not PydanticUndefined or note.default_factory is not None
    return not renames and not fills and all(_is_constraint(item, annotation) for item in note.metadata)


def _is_constraint(note: Any, annotation: Any) -> bool:
    if get_origin(annotation) in (Union, types.UnionType):
        # For a union pydantic may check a constraint without writing it into the schema.
        return False
    kind = type(note).__name__
    settings: dict[str, Any] = getattr(note, "__dict__", {})
    return kind in _CONSTRAINTS or (kind == "_PydanticGeneralMetadata" and set(settings) == {"pattern"})
