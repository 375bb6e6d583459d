"""The parameters of a function as a tool sees them: arguments, the context, and room for more."""

from __future__ import annotations

import functools
import inspect
import typing
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_origin

import typing_extensions
from pydantic.fields import FieldInfo

from toolpost.contracts.errors import ToolSchemaError
from toolpost.schema.annotations import UnresolvedError, is_context, names_context, notes, resolved

if TYPE_CHECKING:
    from collections.abc import Callable

NO_DEFAULT = Parameter.empty


class Argument(NamedTuple):
    """One argument: its type, and the default that the function itself fills in."""

    name: str
    annotation: Any
    default: Any = NO_DEFAULT

    @property
    def key(self) -> str:
        """The name that callers use: the alias, if a `Field` gives one."""
        for note in notes(self.annotation):
            if isinstance(note, FieldInfo):
                alias = note.validation_alias or note.alias
                return alias if isinstance(alias, str) else self.name
        return self.name


class Parameters(NamedTuple):
    """A function's signature, sorted by who fills it in."""

    arguments: tuple[Argument, ...]
    context: str | None
    extras: Any = NO_DEFAULT

    @property
    def has_extras(self) -> bool:
        """Whether the function takes arguments of any name."""
        return self.extras is not NO_DEFAULT


def function_behind(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function that holds the annotations and the docstring: behind partials, wrappers and callable objects."""
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner)
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        inner = type(inner).__call__
    behind: Callable[..., Any] = getattr(inner, "__func__", inner)
    return behind


def name_of(fn: Callable[..., Any]) -> str:
    """What to call a function in a message."""
    return getattr(function_behind(fn), "__qualname__", repr(fn))


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """The signature of a Python function; builtins and classes have none that can be trusted."""
    if not inspect.isfunction(function_behind(fn)):
        raise ToolSchemaError(f"{name_of(fn)} is not a Python function; wrap it in one with annotated parameters")
    try:
        return inspect.signature(fn)
    except (ValueError, TypeError, NameError) as exc:
        raise ToolSchemaError(f"{name_of(fn)} has no readable signature: {exc}") from exc


def parameters_of(fn: Callable[..., Any]) -> Parameters:
    """Sort a function's parameters; those that a call by name cannot fill are refused."""
    arguments: list[Argument] = []
    context: list[str] = []
    extras: Any = NO_DEFAULT
    for parameter in signature_of(fn).parameters.values():
        _check_fillable(fn, parameter)
        annotation = _annotation(fn, parameter)
        if annotation is _CONTEXT:
            context.append(parameter.name)
        elif parameter.kind is Parameter.VAR_KEYWORD:
            extras = _extras(fn, parameter.name, annotation)
        else:
            arguments.append(_argument(parameter, annotation))
    if len(context) > 1:
        raise ToolSchemaError(f"{name_of(fn)} takes the context twice: {', '.join(context)}")
    return Parameters(tuple(arguments), context[0] if context else None, extras)


def _check_fillable(fn: Callable[..., Any], parameter: Parameter) -> None:
    name = parameter.name
    if parameter.kind is Parameter.POSITIONAL_ONLY:
        raise ToolSchemaError(f"{name_of(fn)}: parameter {name!r} is positional-only; remove the '/' after it")
    if parameter.kind is Parameter.VAR_POSITIONAL:
        raise ToolSchemaError(f"{name_of(fn)}: '*{name}' cannot be given by name; use '{name}: list[...]' instead")
    if name in ("self", "cls") and parameter.annotation is Parameter.empty:
        raise ToolSchemaError(f"{name_of(fn)}: parameter {name!r} is not bound; use a bound method as the tool")


def _extras(fn: Callable[..., Any], name: str, annotation: Any) -> Any:
    if get_origin(annotation) in (typing.Unpack, typing_extensions.Unpack):
        raise ToolSchemaError(f"{name_of(fn)}: '**{name}' is unpacked; write its fields as parameters of their own")
    return annotation


_CONTEXT = object()


def _annotation(fn: Callable[..., Any], parameter: Parameter) -> Any:
    """The resolved annotation; a missing one is any JSON, or the context when the name is `ctx`."""
    written = parameter.annotation
    if written is Parameter.empty:
        return _CONTEXT if parameter.name == "ctx" else Any
    try:
        annotation = resolved(written, function_behind(fn))
    except UnresolvedError as exc:
        # Linters move an import that only annotations use under TYPE_CHECKING, where it cannot be found.
        if names_context(written):
            return _CONTEXT
        raise ToolSchemaError(
            f"{name_of(fn)}: the annotation {written!r} of {parameter.name!r} cannot be resolved ({exc}); "
            "define it at module level and import it outside TYPE_CHECKING"
        ) from None
    return _CONTEXT if is_context(annotation) else annotation


def _argument(parameter: Parameter, annotation: Any) -> Argument:
    """An argument; `x: int = Field(...)` is another way to write `Annotated[int, Field(...)]`."""
    if isinstance(parameter.default, FieldInfo):
        return Argument(parameter.name, Annotated[annotation, parameter.default])
    return Argument(parameter.name, annotation, parameter.default)
