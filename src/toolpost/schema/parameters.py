"""Read the parameters and annotations of a function: arguments, the context, and `**kwargs`."""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections import abc
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typing_extensions
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import Doc, ReadOnly, TypeAliasType, is_typeddict

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolSchemaError
from toolpost.contracts.outcomes import ToolResult

NO_DEFAULT = Parameter.empty


class Argument(NamedTuple):
    """One argument: its type, and the function's own default."""

    name: str
    annotation: Any
    default: Any = NO_DEFAULT

    @property
    def key(self) -> str:
        """Return the name that callers use: the alias, if a `Field` gives one."""
        for note in annotated_metadata(self.annotation):
            if isinstance(note, FieldInfo):
                alias = note.validation_alias or note.alias
                return alias if isinstance(alias, str) else self.name
        return self.name


class Parameters(NamedTuple):
    """The parameters of a function: arguments of the caller, the context, and `**kwargs`."""

    arguments: tuple[Argument, ...]
    context: str | None
    extras: Any = NO_DEFAULT

    @property
    def has_extras(self) -> bool:
        """Whether the function takes arguments of any name."""
        return self.extras is not NO_DEFAULT


def unwrap_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with the annotations and the docstring, behind partials, wrappers and callable objects."""
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner)
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        inner = type(inner).__call__
    behind: Callable[..., Any] = getattr(inner, "__func__", inner)
    return behind


def function_name(fn: Callable[..., Any]) -> str:
    """Return the name of a function for messages."""
    return getattr(unwrap_function(fn), "__qualname__", repr(fn))


def read_signature(fn: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a Python function; ToolSchemaError for builtins and classes."""
    if not inspect.isfunction(unwrap_function(fn)):
        raise ToolSchemaError(f"{function_name(fn)} is not a Python function; wrap it in one with annotated parameters")
    try:
        return inspect.signature(fn)
    except (ValueError, TypeError, NameError) as exc:
        raise ToolSchemaError(f"{function_name(fn)} has no readable signature: {exc}") from exc


def read_parameters(fn: Callable[..., Any]) -> Parameters:
    """Read a function's parameters; ToolSchemaError for one that cannot be passed by name."""
    arguments: list[Argument] = []
    context: list[str] = []
    extras: Any = NO_DEFAULT
    for parameter in read_signature(fn).parameters.values():
        _check_fillable(fn, parameter)
        annotation = _annotation(fn, parameter)
        if annotation is _CONTEXT:
            context.append(parameter.name)
        elif parameter.kind is Parameter.VAR_KEYWORD:
            extras = _extras(fn, parameter.name, annotation)
        else:
            arguments.append(_argument(parameter, annotation))
    if len(context) > 1:
        raise ToolSchemaError(f"{function_name(fn)} takes the context twice: {', '.join(context)}")
    return Parameters(tuple(arguments), context[0] if context else None, extras)


def _check_fillable(fn: Callable[..., Any], parameter: Parameter) -> None:
    name = parameter.name
    if parameter.kind is Parameter.POSITIONAL_ONLY:
        raise ToolSchemaError(f"{function_name(fn)}: parameter {name!r} is positional-only; remove the '/' after it")
    if parameter.kind is Parameter.VAR_POSITIONAL:
        raise ToolSchemaError(
            f"{function_name(fn)}: '*{name}' cannot be given by name; use '{name}: list[...]' instead"
        )
    if name in ("self", "cls") and parameter.annotation is Parameter.empty:
        raise ToolSchemaError(f"{function_name(fn)}: parameter {name!r} is not bound; use a bound method as the tool")


def _extras(fn: Callable[..., Any], name: str, annotation: Any) -> Any:
    if get_origin(annotation) in (typing.Unpack, typing_extensions.Unpack):
        raise ToolSchemaError(
            f"{function_name(fn)}: '**{name}' is unpacked; write its fields as parameters of their own"
        )
    return annotation


_CONTEXT = object()


def _annotation(fn: Callable[..., Any], parameter: Parameter) -> Any:
    """Return the resolved annotation; a missing one is any JSON, or the context when the name is `ctx`."""
    written = parameter.annotation
    if written is Parameter.empty:
        return _CONTEXT if parameter.name == "ctx" else Any
    try:
        annotation = resolve_annotation(written, unwrap_function(fn))
    except UnresolvedError as exc:
        # Linters move an import that only annotations use under TYPE_CHECKING, where it cannot be found.
        if looks_like_context(written):
            return _CONTEXT
        raise ToolSchemaError(
            f"{function_name(fn)}: the annotation {written!r} of {parameter.name!r} cannot be resolved ({exc}); "
            "define it at module level and import it outside TYPE_CHECKING"
        ) from None
    return _CONTEXT if is_context(annotation) else annotation


def _argument(parameter: Parameter, annotation: Any) -> Argument:
    """Build an argument; `x: int = Field(...)` means `Annotated[int, Field(...)]`."""
    if isinstance(parameter.default, FieldInfo):
        return Argument(parameter.name, Annotated[annotation, parameter.default])
    return Argument(parameter.name, annotation, parameter.default)


_ATOMS = (str, int, float, bool, type(None), None, Any, object, list, dict, inspect.Parameter.empty)
_LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
_DICTS = (dict, abc.Mapping, abc.MutableMapping)
_QUALIFIERS = (Required, NotRequired, ReadOnly)
# What pydantic writes into the JSON Schema in full, so that checking the schema is enough.
_CONSTRAINTS = frozenset({"Ge", "Gt", "Le", "Lt", "MultipleOf", "MinLen", "MaxLen"})
_RAW_RESULTS = (ToolOutput, ToolResult, bytes, bytearray, memoryview)

_CONTEXT_NAME = re.compile(r"(Optional\[)?(\w+\.)*ToolContext\]?(\s*\|\s*None)?")
_RESULT_NAME = re.compile(r"\b(ToolOutput|ToolResult)\b")


class UnresolvedError(Exception):
    """An annotation names something that does not exist where the function was defined."""


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
    return {name: cell.cell_contents for name, cell in zip(names, cells, strict=True) if _is_filled(cell)}


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asking an empty cell is the only way to find out
    except ValueError:
        return False
    return True


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
    """Whether metadata neither changes the value nor demands more than the schema says."""
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
