"""Where an operation's request goes: its server and its path, with the path parameters in their places."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

from toolpost.contracts.errors import ToolSchemaError
from toolpost.web.encoding import UnsendableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.web.encoding import Pair

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_STEPS = frozenset({".", ".."})
_LITERAL = "/:@!$&'()*+,;=%?"


class Slot(NamedTuple):
    """A place for a path parameter, as `written` and by its `name`.

    Some templates say with `{+name}` or `{name+}` that it may span segments.
    """

    written: str
    name: str
    spanning: bool


class Template(NamedTuple):
    """An operation's URL, taken apart: literals and slots in turn."""

    server: str
    pieces: tuple[str | Slot, ...]
    query: tuple[Pair, ...]


class Target(NamedTuple):
    """A URL without a query, and the part of the query that the document itself fixes."""

    address: str
    query: tuple[Pair, ...]


def target_of(server: str, path: str, fill: Callable[[Slot], str]) -> Target:
    """The URL with every slot filled; a value that would change the path's structure is refused."""
    template = template_of(server, path)
    filled = "".join(piece if isinstance(piece, str) else fill(piece) for piece in template.pieces)
    path, _, fixed = filled.partition("?")
    if "." in path and not _STEPS.isdisjoint(path.split("/")):
        raise UnsendableError("the values make a step '.' or '..', which would lead to another path")
    return Target(template.server + path, (*template.query, *pairs_of(fixed)))


@lru_cache(maxsize=4096)
def template_of(server: str, path: str) -> Template:
    """Read a server and a path as a document writes them; a fragment tells twins apart there and is never sent."""
    try:
        base = urlsplit(server)
        usable = base.scheme in ("http", "https") and bool(base.hostname)
    except ValueError:
        usable = False
        base = urlsplit("")
    if not usable:
        raise ToolSchemaError(f"The server {server!r} is not an http or https URL; give one with base_url.")
    pieces = _PLACEHOLDER.split(path.partition("#")[0])
    read = [_slot(piece) if at % 2 else quote(piece, safe=_LITERAL) for at, piece in enumerate(pieces)]
    below = quote(base.path, safe=_LITERAL).rstrip("/")
    gap = "" if path.startswith("/") else "/"
    return Template(f"{base.scheme}://{base.netloc}{below}{gap}", tuple(read), pairs_of(base.query))


def pairs_of(query: str) -> tuple[Pair, ...]:
    """The pairs of a query that is already encoded."""
    return tuple((name, value) for part in query.split("&") if part for name, _, value in [part.partition("=")])


def _slot(text: str) -> Slot:
    name = text.strip("+*")
    return Slot(text, name, text != name)
