"""The target of a Python tool: which function runs, and its code."""

from __future__ import annotations

import functools
import inspect
import os
from types import CodeType
from typing import TYPE_CHECKING, Any

from toolpost.contracts.spec import ToolTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PYTHON = "python"
_MOST_LAYERS = 100  # who wraps in a circle is not followed for ever


def code_target(fn: Callable[..., Any]) -> ToolTarget:
    """The target of a tool that runs `fn`; its code is read when it is first needed.

    The code is that of the function itself and of what is wrapped around it, not of what it calls.
    """
    layers = list(_layers(fn))
    inner = layers[-1]
    name = str(getattr(inner, "__qualname__", type(inner).__qualname__))
    return ToolTarget(PYTHON, f"Python function {name} in {_file_of(inner)}", functools.partial(_code, layers))


def _layers(fn: Any) -> Iterator[Any]:
    """The functions that wrap one another, the innermost last; of a callable object, what is called of it."""
    for _ in range(_MOST_LAYERS):
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif (wrapped := getattr(fn, "__wrapped__", None)) is not None:
            yield fn
            fn = wrapped
        else:
            break
    yield fn if inspect.isroutine(fn) else type(fn).__call__


def _code(layers: list[Any]) -> str:
    return "\n".join(map(_code_of, layers))


def _file_of(fn: Any) -> str:
    """The file's name without its folder, which differs between machines."""
    code = getattr(fn, "__code__", None)
    if isinstance(code, CodeType):
        return os.path.basename(code.co_filename)  # noqa: PTH119 - it may be `<string>`, which is no path
    return str(getattr(fn, "__module__", "a module"))


def _code_of(fn: Any) -> str:
    """The function's text, which is the same under every version of Python; its instructions where there is none."""
    code = getattr(fn, "__code__", None)  # a function's own: `inspect` would look behind a wrapper
    try:
        return inspect.getsource(fn if code is None else code)
    except (OSError, TypeError):
        return "\n".join(_instructions(code)) if isinstance(code, CodeType) else ""


def _instructions(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)
        else:
            yield repr(constant)
