"""The parameters of a Python function: arguments of the caller, the context, and `**kwargs`."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from inspect import Parameter
from typing import Annotated, Any, NamedTuple, get_origin

import typing_extensions
from pydantic.fields import FieldInfo

from toolpost.contracts.errors import ToolSchemaError
from toolpost.schema.annotations import (
    UnresolvedError,
    annotated_metadata,
    is_context,
    looks_like_context,
    resolve_annotation,
)

NO_DEFAULT = Parameter.empty
_CONTEXT = object()


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
            if get_origin(annotation) in (typing.Unpack, typing_extensions.Unpack):
                raise ToolSchemaError(
                    f"{function_name(fn)}: '**{parameter.name}' is unpacked; write its fields as separate parameters"
                )
            extras = annotation
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
