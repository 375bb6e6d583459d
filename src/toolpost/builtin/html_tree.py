"""Tree of an HTML page, parsed by selectolax in a separate process that limits time and memory."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Struct

from toolpost.contracts.errors import ConfigError, ToolClientError, ToolTimeoutError
from toolpost.processes.commands import run_command
from toolpost.processes.launch import child_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

Child: TypeAlias = "Element | str"

_PROGRAM = str(Path(__file__).with_name("html_parser_program.py"))
_PARSE_S = 5.0
_MAX_TREE_BYTES = 64 << 20


class Element(Struct, array_like=True):
    """An element with the attributes that matter to a reader, and its children."""

    name: str
    attributes: dict[str, str]
    children: list[Child]

    def walk(self) -> Iterator[Element]:
        """Yield the element and all elements below it, in document order."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting += [child for child in reversed(element.children) if isinstance(child, Element)]

    def has_class(self, name: str) -> bool:
        """Return whether the element has a class."""
        return name in self.attributes.get("class", "").split()


async def parse_html(source: str) -> Element:
    """Parse a page as browsers do, without scripts, styles and comments; the root has no name.

    A page that takes too long or too much memory raises a ToolClientError.
    """
    found = find_spec("selectolax")
    if found is None or found.origin is None:
        raise ConfigError("Reading HTML pages needs selectolax; run: pip install 'toolpost[http]'")
    packages = str(Path(found.origin).parent.parent)
    try:
        result = await run_command(
            (sys.executable, "-I", "-S", _PROGRAM, packages),
            env=child_environment({}),
            stdin=source.encode("utf-8", "replace"),
            timeout_s=_PARSE_S,
            max_output_bytes=_MAX_TREE_BYTES,
        )
    except ToolTimeoutError:
        raise _too_complex(f"parsing it took longer than {_PARSE_S:g} s") from None
    if result.exit_code != 0:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.exit_code}"]
        raise _too_complex(f"the parser failed ({lines[-1][:200]})")
    return msgspec.json.decode(result.stdout, type=Element)


def _too_complex(reason: str) -> ToolClientError:
    return ToolClientError(f"The page is too complex: {reason}. http_get returns its source", code="page_too_complex")
