"""The standard library's TypedDict, rebuilt in the form that pydantic asks for before Python 3.12."""

from __future__ import annotations

import sys
import types
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from typing_extensions import TypedDict, is_typeddict

_QUALIFIERS = (Required, NotRequired)
_IS_OLD = sys.version_info < (3, 12)

Memo = dict[Any, Any]


def modernized(annotation: Any, memo: Memo) -> Any:
    """An annotation with every old TypedDict in it replaced; `memo` keeps one replacement for each."""
    if not _IS_OLD:
        return annotation
    if is_typeddict(annotation):
        return memo[annotation] if annotation in memo else _rebuilt(annotation, memo)
    args = get_args(annotation)
    if not args or get_origin(annotation) is Literal:
        return annotation
    return _with_args(annotation, args, memo)


def _with_args(annotation: Any, args: tuple[Any, ...], memo: Memo) -> Any:
    origin: Any = get_origin(annotation)
    if origin is Annotated:
        return _subscripted(Annotated, (modernized(args[0], memo), *args[1:]))
    changed = tuple(modernized(arg, memo) for arg in args)
    if changed == args:
        return annotation
    if origin in (Union, types.UnionType):
        return _subscripted(Union, changed)
    return _subscripted(origin, changed[0] if origin in _QUALIFIERS else changed)


def _subscripted(form: Any, args: Any) -> Any:
    return form[args]


def _rebuilt(old: Any, memo: Memo) -> Any:
    # A modern one is fine, and one that contains itself stays as it is; pydantic then says what to do.
    memo[old] = old
    if type(old).__module__ != "typing":
        return old
    hints = get_type_hints(old, include_extras=True)
    fields = {
        name: _field(modernized(hint, memo), required=name in old.__required_keys__) for name, hint in hints.items()
    }
    make: Any = TypedDict
    memo[old] = new = make(old.__name__, fields)
    new.__doc__ = old.__doc__
    new.__module__ = old.__module__
    return new


def _field(hint: Any, *, required: bool) -> Any:
    if get_origin(hint) in _QUALIFIERS:
        return hint
    return _subscripted(Required if required else NotRequired, hint)
