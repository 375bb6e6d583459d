"""Parse a docstring: the description of a function, and that of each parameter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import docstring_parser
from docstring_parser import Docstring, DocstringStyle
from docstring_parser.google import DEFAULT_SECTIONS, GoogleParser, Section, SectionType

# Sections with remarks for callers; the parser of Google's style drops unknown sections.
_REMARKS = ("Note", "Notes", "Warning", "Warnings", "Important", "Caution")
_SECTIONS = [Section(title, title.lower(), SectionType.SINGULAR) for title in _REMARKS]
_google = GoogleParser([*DEFAULT_SECTIONS, *_SECTIONS])


class Documentation(NamedTuple):
    """A function's description without its lists of parameters and results, and the description of each parameter."""

    description: str
    parameters: Mapping[str, str]


def parse_docstring(text: str) -> Documentation:
    """Parse a docstring in Google's, NumPy's or Sphinx's style; in any other style, all of it is the description."""
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
        for name in param.arg_name.split(",")  # NumPy's style may describe several together
    }
    return Documentation("\n\n".join(_paragraphs(parsed)), described)


def _paragraphs(parsed: Docstring) -> Iterator[str]:
    if parsed.description:
        yield parsed.description.strip()
    for section in parsed.meta:
        if section.description and section.args[0].capitalize() in _REMARKS:
            yield f"{section.args[0].capitalize()}: {section.description.strip()}"
