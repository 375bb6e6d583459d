"""What a docstring says about a function and its parameters, in Google's, NumPy's or Sphinx's style."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, NamedTuple

import docstring_parser
from docstring_parser import DocstringStyle
from docstring_parser.google import DEFAULT_SECTIONS, GoogleParser, Section, SectionType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from docstring_parser import Docstring

# Sections that tell a caller something; the parser of Google's style drops those that it does not know.
_REMARKS = ("Note", "Notes", "Warning", "Warnings", "Important", "Caution")
_SECTIONS = [Section(title, title.lower(), SectionType.SINGULAR) for title in _REMARKS]
_google = GoogleParser([*DEFAULT_SECTIONS, *_SECTIONS])


class Documentation(NamedTuple):
    """A function's description without its lists of parameters and results, and a line for each parameter."""

    description: str
    parameters: Mapping[str, str]


def documentation_of(fn: Callable[..., Any]) -> Documentation:
    """Read a function's docstring; one in no known style is all description."""
    text = inspect.getdoc(fn) or ""
    try:
        parsed = docstring_parser.parse(text)
        if parsed.style is DocstringStyle.GOOGLE:
            parsed = _google.parse(text)
    except docstring_parser.ParseError:
        return Documentation(text.strip(), {})
    described = {
        name.strip().lstrip("*"): " ".join(param.description.split())
        for param in parsed.params
        if param.description
        for name in param.arg_name.split(",")  # NumPy's style may describe several at once
    }
    return Documentation("\n\n".join(_said(parsed)), described)


def _said(parsed: Docstring) -> Iterator[str]:
    """The description, and the remarks that stand behind the lists."""
    if parsed.description:
        yield parsed.description.strip()
    for section in parsed.meta:
        if section.description and section.args[0].capitalize() in _REMARKS:
            yield f"{section.args[0].capitalize()}: {section.description.strip()}"
