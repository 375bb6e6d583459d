"""What a docstring says about a function and its parameters, in Google's, NumPy's or Sphinx's style."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, NamedTuple

import docstring_parser

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


class Documentation(NamedTuple):
    """A function's description without its lists of parameters and results, and a line for each parameter."""

    description: str
    parameters: Mapping[str, str]


def documentation_of(fn: Callable[..., Any]) -> Documentation:
    """Read a function's docstring; one in no known style is all description."""
    text = inspect.getdoc(fn) or ""
    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return Documentation(text.strip(), {})
    described = {param.arg_name.lstrip("*"): " ".join((param.description or "").split()) for param in parsed.params}
    return Documentation((parsed.description or "").strip(), {name: line for name, line in described.items() if line})
