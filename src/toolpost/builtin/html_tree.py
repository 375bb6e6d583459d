"""HTML as a tree, read in one pass whatever is wrong with it; scripts, styles and comments are left out.

Not a browser's parser: it knows the end tags that authors leave out, and forgets elements that are nested too deeply.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Child: TypeAlias = "Element | str"


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set of names."""
    return frozenset(text.split())


VOID = words("area base br col embed hr img input link meta source track wbr")
_RAW = words("script style iframe noembed noframes xmp template noscript svg math")
_PLAIN = frozenset({"title", "textarea"})
_DEEPEST = 150
_MOST_TOKENS = 200_000
_MOST_ATTRIBUTES = 50
_OPENING = re.compile("<(?=[a-zA-Z/!?])")
_NAME = re.compile(r"[a-zA-Z][^\s/>]*")
_ATTRIBUTE = re.compile(r"""[\s/]*([^\s/>][^\s/>=]*)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]*)))?""")
_TAG_END = re.compile(r"[\s/]*>")

_SECTIONS = frozenset({"tbody", "thead", "tfoot"})
_CELLS, _ROWS = frozenset({"td", "th"}), frozenset({"tr", "td", "th"})
# By the element that begins: those that it ends, and those that it cannot reach beyond.
_ENDED_BY: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "li": (frozenset({"li"}), frozenset({"ul", "ol", "menu"})),
    "dt": (frozenset({"dt", "dd"}), frozenset({"dl"})),
    "dd": (frozenset({"dt", "dd"}), frozenset({"dl"})),
    "td": (_CELLS, frozenset({"tr", "table"})),
    "th": (_CELLS, frozenset({"tr", "table"})),
    "tr": (_ROWS, frozenset({"table"})),
    "option": (frozenset({"option"}), frozenset({"select"})),
    **dict.fromkeys(_SECTIONS, (_ROWS | _SECTIONS | {"caption"}, frozenset({"table"}))),
}
_ENDS_P = words(
    "address article aside blockquote details div dl fieldset figure footer form h1 h2 h3 h4 h5 h6 header "
    "hr main nav ol p pre section table ul"
)
_HOLDS_P = words("article aside blockquote body button dd div fieldset footer header li main section td th")


@dataclass(slots=True)
class Element:
    """An element with its attributes, and what is in it; text is kept as it is written."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    children: list[Child] = field(default_factory=list["Element | str"])


class Token(NamedTuple):
    """A piece of markup: text when it has no name, else the beginning or the end of an element."""

    text: str = ""
    name: str = ""
    end: bool = False
    attributes: dict[str, str] | None = None


def parse_html(source: str) -> Element:
    """The tree of a document, below an element without a name."""
    tree = _Tree()
    for token in islice(_tokens(source), _MOST_TOKENS):
        if not token.name:
            tree.text(token.text)
        elif token.end:
            tree.end(token.name)
        else:
            tree.begin(token.name, token.attributes or {})
    return tree.root


class _Tree:
    """The elements that are open."""

    def __init__(self) -> None:
        self.root = Element("")
        self._open = [self.root]

    def text(self, text: str) -> None:
        if text:
            self._open[-1].children.append(text)

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        if name in _ENDED_BY:
            self._close_any(*_ENDED_BY[name])
        elif name in _ENDS_P:
            self._close_any(frozenset({"p"}), _HOLDS_P)
        if name not in VOID and len(self._open) >= _DEEPEST:
            return
        element = Element(name, attributes)
        self._open[-1].children.append(element)
        if name not in VOID:
            self._open.append(element)

    def end(self, name: str) -> None:
        for depth in range(len(self._open) - 1, 0, -1):
            if self._open[depth].name == name:
                del self._open[depth:]
                return
            if self._open[depth].name == "table":  # an end tag inside a cell cannot end what is around the table
                return

    def _close_any(self, names: frozenset[str], within: frozenset[str]) -> None:
        """Close the open elements of these names, as far as the nearest that they belong to."""
        outermost = None
        for depth in range(len(self._open) - 1, 0, -1):
            if self._open[depth].name in within:
                break
            if self._open[depth].name in names:
                outermost = depth
        if outermost is not None:
            del self._open[outermost:]


def _tokens(source: str) -> Iterator[Token]:
    """Every character is looked at a bounded number of times, so that no page takes longer than its length."""
    at = 0
    while (opening := _OPENING.search(source, at)) is not None:
        begin = opening.start()
        yield Token(html.unescape(source[at:begin]))
        token, at = _tag_at(source, begin)
        if token is not None:
            yield token
            if not token.end and token.name in _PLAIN:
                inside, at = at, _raw_end(source, token.name, at)
                yield Token(html.unescape(source[inside:at]))
                yield Token(name=token.name, end=True)
    yield Token(html.unescape(source[at:]))


def _tag_at(source: str, begin: int) -> tuple[Token | None, int]:
    """The token that begins at a `<`, None where it says nothing, and where it ends."""
    if source.startswith("<!--", begin):
        return None, _after(source, "-->", begin + 4)
    if source[begin + 1 : begin + 2] in ("!", "?"):
        return None, _after(source, ">", begin)
    if source.startswith("</", begin):
        name = _NAME.match(source, begin + 2)
        token = Token(name=name[0].lower(), end=True) if name else None
        return token, _after(source, ">", begin)
    return _start_tag(source, begin + 1)


def _start_tag(source: str, begin: int) -> tuple[Token | None, int]:
    attributes: dict[str, str] = {}
    name = _NAME.match(source, begin)
    at = name.end() if name else begin
    while (closing := _TAG_END.match(source, at)) is None:
        written = _ATTRIBUTE.match(source, at)
        if written is None:
            return None, len(source)
        value = written[2] or written[3] or written[4] or ""
        if len(attributes) < _MOST_ATTRIBUTES:
            attributes.setdefault(written[1].lower(), html.unescape(value))
        at = written.end()
    lowered, end = name[0].lower() if name else "", closing.end()
    if lowered in _RAW:
        return None, _after(source, ">", _raw_end(source, lowered, end))
    return Token(name=lowered, attributes=attributes), end


def _raw_end(source: str, name: str, at: int) -> int:
    found = re.compile(f"</{name}(?=[\\s/>])", re.IGNORECASE).search(source, at)
    return found.start() if found else len(source)


def _after(source: str, mark: str, at: int) -> int:
    found = source.find(mark, at)
    return len(source) if found < 0 else found + len(mark)
