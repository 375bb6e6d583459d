"""The target of a tool that runs a Python function: a summary, and the source code."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from toolpost.contracts.spec import ToolTarget

PYTHON = "python"
_MOST_LAYERS = 100  # ends the search if functions wrap each other in a cycle


def code_target(fn: Callable[..., Any]) -> ToolTarget:
    """Return the target of a tool that runs `fn`; the source code is read on first use.

    The code contains the function and its wrappers, not the functions that it calls.
    """
    layers = list(_layers(fn))
    inner = layers[-1]
    name = str(getattr(inner, "__qualname__", type(inner).__qualname__))
    summary = f"Python function {name} in {_file_of(inner)}"
    return ToolTarget(PYTHON, summary, lambda: "\n".join(map(_code_of, layers)))


def _layers(fn: Any) -> Iterator[Any]:
    """Yield the wrappers of a function, the innermost function last; for a callable object, its `__call__`."""
    for _ in range(_MOST_LAYERS):
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif (wrapped := getattr(fn, "__wrapped__", None)) is not None:
            yield fn
            fn = wrapped
        else:
            break
    yield fn if inspect.isroutine(fn) else type(fn).__call__


def _file_of(fn: Any) -> str:
    """Return the file name without its folder, which differs between machines."""
    code = getattr(fn, "__code__", None)
    if isinstance(code, CodeType):
        return os.path.basename(code.co_filename)  # noqa: PTH119 - it may be `<string>`, which is not a path
    return str(getattr(fn, "__module__", "a module"))


def _code_of(fn: Any) -> str:
    """Return the function's source text, or its bytecode without a source."""
    # The text is the same under every version of Python; bytecode is not.
    code = getattr(fn, "__code__", None)  # of this function: `inspect` would follow wrappers
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
