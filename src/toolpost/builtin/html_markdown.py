"""Parses a web page in one pass, whatever is wrong with it, and converts what a person would read to Markdown.

Not a browser's parser: it knows the end tags that authors leave out, and drops elements that are nested too deeply.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias
from urllib.parse import urljoin

from msgspec import Struct, field

Cell = list[str]

Child: TypeAlias = "Element | str"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


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
_LONGEST_CELL = 500
_MOST_COLUMNS = 50
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_MARKS = {"b": "**", "strong": "**", "em": "*", "i": "*", "del": "~~", "s": "~~"}
_CODE = frozenset({"code", "kbd", "samp", "tt"})
_AROUND = frozenset({"nav", "footer", "aside", "header"})
_CONTENT = frozenset({"main", "article"})
_HIDING_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d])|opacity\s*:\s*0(?![.\d]*[1-9])"
    r"|text-indent\s*:\s*-\d{3}|(?:left|top)\s*:\s*-\d{4}",
    re.IGNORECASE,
)
_HIDING_CLASS = frozenset({"hidden", "sr-only", "visually-hidden", "screen-reader-text", "d-none"})
_SPACE = re.compile(r"[ \t\n\r\f]+")
_LANGUAGE = re.compile(r"\blang(?:uage)?-([\w+#-]+)")
_GAPS = re.compile(r"\n{3,}")
_URL_ESCAPES = {" ": "%20", "(": "%28", ")": "%29", "<": "%3C", ">": "%3E", "\n": "", "\t": "", "\r": ""}
_VOID = _words("area base br col embed hr img input link meta source track wbr")
_RAW = _words("script style iframe noembed noframes xmp template noscript svg math")
_ENDS_P = _words(
    "address article aside blockquote details div dl fieldset figure footer form h1 h2 h3 h4 h5 h6 header "
    "hr main nav ol p pre section table ul"
)
_HOLDS_P = _words("article aside blockquote body button dd div fieldset footer header li main section td th")
_BLOCKS = _words(
    "address article aside blockquote body caption center dd details div dl dt fieldset figcaption figure "
    "footer form h1 h2 h3 h4 h5 h6 head header hr html li main nav ol p pre section summary table tbody "
    "td tfoot th thead tr ul"
)
_NEVER = _words("head title button select option input textarea datalist dialog object embed canvas audio video")


class Element(Struct):
    """An element with its attributes and children; text is kept as it is written."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    children: list[Child] = field(default_factory=list["Element | str"])

    def walk(self) -> Iterator[Element]:
        """Yield the element and all below it, in document order."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting += [child for child in reversed(element.children) if isinstance(child, Element)]


class _Token(NamedTuple):
    """A token: text when it has no name, else a start tag or an end tag."""

    text: str = ""
    name: str = ""
    end: bool = False
    attributes: dict[str, str] | None = None


def parse_html(source: str) -> Element:
    """Parse a document to a tree, below an element without a name; scripts, styles and comments are dropped."""
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
    """Builds the tree; a stack of open elements."""

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
        if name not in _VOID and len(self._open) >= _DEEPEST:
            return
        element = Element(name, attributes)
        self._open[-1].children.append(element)
        if name not in _VOID:
            self._open.append(element)

    def end(self, name: str) -> None:
        for depth in range(len(self._open) - 1, 0, -1):
            if self._open[depth].name == name:
                del self._open[depth:]
                return
            if self._open[depth].name == "table":  # an end tag inside a cell cannot end what is around the table
                return

    def _close_any(self, names: frozenset[str], within: frozenset[str]) -> None:
        """Close the open elements of these names, up to the nearest element that limits them."""
        outermost = None
        for depth in range(len(self._open) - 1, 0, -1):
            if self._open[depth].name in within:
                break
            if self._open[depth].name in names:
                outermost = depth
        if outermost is not None:
            del self._open[outermost:]


def _tokens(source: str) -> Iterator[_Token]:
    """Yield tokens in linear time: every character is looked at a bounded number of times."""
    at = 0
    while (opening := _OPENING.search(source, at)) is not None:
        begin = opening.start()
        yield _Token(html.unescape(source[at:begin]))
        token, at = _tag_at(source, begin)
        if token is not None:
            yield token
            if not token.end and token.name in _PLAIN:
                inside, at = at, _raw_end(source, token.name, at)
                yield _Token(html.unescape(source[inside:at]))
                yield _Token(name=token.name, end=True)
    yield _Token(html.unescape(source[at:]))


def _tag_at(source: str, begin: int) -> tuple[_Token | None, int]:
    """Parse the token at a `<`, None for a comment or declaration, and return where it ends."""
    if source.startswith("<!--", begin):
        return None, _after(source, "-->", begin + 4)
    if source[begin + 1 : begin + 2] in ("!", "?"):
        return None, _after(source, ">", begin)
    if source.startswith("</", begin):
        name = _NAME.match(source, begin + 2)
        token = _Token(name=name[0].lower(), end=True) if name else None
        return token, _after(source, ">", begin)
    return _start_tag(source, begin + 1)


def _start_tag(source: str, begin: int) -> tuple[_Token | None, int]:
    attributes: dict[str, str] = {}
    name = _NAME.match(source, begin)
    at = name.end() if name else begin
    while (closing := _TAG_END.match(source, at)) is None:
        match = _ATTRIBUTE.match(source, at)
        if match is None:
            return None, len(source)
        value = match[2] or match[3] or match[4] or ""
        if len(attributes) < _MOST_ATTRIBUTES:
            attributes.setdefault(match[1].lower(), html.unescape(value))
        at = match.end()
    lowered, end = name[0].lower() if name else "", closing.end()
    if lowered in _RAW:
        return None, _after(source, ">", _raw_end(source, lowered, end))
    return _Token(name=lowered, attributes=attributes), end


def _raw_end(source: str, name: str, at: int) -> int:
    match = re.compile(f"</{name}(?=[\\s/>])", re.IGNORECASE).search(source, at)
    return match.start() if match else len(source)


def _after(source: str, mark: str, at: int) -> int:
    begin = source.find(mark, at)
    return len(source) if begin < 0 else begin + len(mark)


def table_lines(rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Convert rows of cells of blocks to one Markdown table; a table used for layout to its blocks."""
    width = max((len(row) for row in rows), default=0)
    if width < 2 or width > _MOST_COLUMNS or any(_is_layout(cell) for row in rows for cell in row):
        return [block for row in rows for cell in row for block in cell]
    head, *body = [row for row in rows if any(row)] or [[]]
    above: list[str] = []
    if len(head) == 1 and body:  # a caption, or a heading over all columns
        above, head, body = head[0], body[0], body[1:]
    lines = [_line(head, width), "|" + " --- |" * width, *(_line(row, width) for row in body)]
    return [*above, "\n".join(lines)] if any(head) or body else []


def _is_layout(cell: Cell) -> bool:
    return sum(map(len, cell)) > _LONGEST_CELL or any(block.startswith(("#", "|", "```")) for block in cell)


def _line(row: Sequence[Cell], width: int) -> str:
    cells = [" ".join(cell).replace("\n", " ").replace("|", "\\|") for cell in row]
    return "".join(f"| {cell} " for cell in [*cells, *[""] * (width - len(cells))]) + "|"


class MarkdownPage(NamedTuple):
    """The title and the content of a page, as Markdown."""

    title: str
    markdown: str


def page_markdown(source: str, *, base_url: str) -> MarkdownPage:
    """Convert a page to Markdown; links become absolute."""
    tree = parse_html(source)
    base = _first(tree, "base")
    start = _resolve_link(base_url, base.attributes.get("href", "")) or base_url if base else base_url
    title = _first(tree, "title")
    text = _Writer(start).markdown(tree) or _Writer(start, whole=True).markdown(tree)
    return MarkdownPage(" ".join(_raw_text(title).split()) if title else "", text)


class _Writer(Struct, frozen=True):
    """Converts elements; `whole` keeps navigation, header and footer."""

    base: str
    whole: bool = False

    def markdown(self, tree: Element) -> str:
        return _GAPS.sub("\n\n", "\n\n".join(self._blocks(tree, around=True))).strip()

    def _blocks(self, element: Element, *, around: bool) -> list[str]:
        """Convert an element to blocks; texts and inline elements between them are paragraphs."""
        blocks: list[str] = []
        inline: list[Child] = []
        for child in element.children:
            if isinstance(child, Element) and self._is_block(child):
                self._end_paragraph(inline, blocks)
                blocks += self._block(child, around=around)
            else:
                inline.append(child)
        self._end_paragraph(inline, blocks)
        return blocks

    def _end_paragraph(self, inline: list[Child], blocks: list[str]) -> None:
        text = _tidy(self._inline(inline))
        inline.clear()
        if text:
            blocks.append(text)

    def _is_block(self, element: Element) -> bool:
        """Return whether an element is a block; an inline element that contains one is, too."""
        if element.name in _BLOCKS:
            return True
        inner = (child for child in element.children if isinstance(child, Element))
        return element.name not in _CODE and any(child.name in _BLOCKS for child in inner)

    def _block(self, element: Element, *, around: bool) -> list[str]:
        name = element.name
        if self._is_left_out(element, around=around):
            return []
        if name in _HEADINGS:
            text = _tidy(self._inline(element.children)).replace("\n", " ")
            return [f"{'#' * _HEADINGS[name]} {text}"] if text else []
        if name == "pre":
            return self._code_block(element)
        if name in ("ul", "ol"):
            return self._list(element)
        if name == "table":
            return self._table(element)
        return self._other_block(element, around=around and name not in _CONTENT)

    def _other_block(self, element: Element, *, around: bool) -> list[str]:
        if element.name == "hr":
            return ["---"]
        blocks = self._blocks(element, around=around)
        if element.name == "blockquote":
            return ["\n".join(f"> {line}".rstrip() for line in "\n\n".join(blocks).split("\n"))] if blocks else []
        if element.name == "dt":
            return [f"**{' '.join(blocks)}**"] if blocks else []
        return blocks

    def _is_left_out(self, element: Element, *, around: bool) -> bool:
        if element.name in _NEVER or _is_hidden(element):
            return True
        return element.name in _AROUND and around and not self.whole

    def _list(self, element: Element) -> list[str]:
        lines: list[str] = []
        number = _list_start(element)
        for item in (child for child in element.children if isinstance(child, Element)):
            if self._is_left_out(item, around=False):
                continue
            blocks = self._blocks(item, around=False) if item.name == "li" else self._block(item, around=False)
            if not blocks:
                continue
            mark = f"{number}. " if element.name == "ol" else "- "
            number += 1
            text = "\n".join(blocks).replace("\n", "\n" + " " * len(mark))
            lines.append(mark + text)
        return ["\n".join(lines)] if lines else []

    def _table(self, element: Element) -> list[str]:
        rows = [
            [self._blocks(cell, around=False) for cell in cells] for cells in _rows(element) if not _is_hidden(element)
        ]
        return table_lines(rows)

    def _code_block(self, element: Element) -> list[str]:
        text = _raw_text(element).strip("\n")
        if not text.strip():
            return []
        inner = next((child for child in element.children if isinstance(child, Element)), element)
        language = _LANGUAGE.search(f"{element.attributes.get('class', '')} {inner.attributes.get('class', '')}")
        fence = "```"
        while fence in text:
            fence += "`"
        return [f"{fence}{language[1] if language else ''}\n{text}\n{fence}"]

    def _inline(self, children: Iterable[Child]) -> str:
        return "".join(self._inline_child(child) for child in children)

    def _inline_child(self, child: Child) -> str:
        if isinstance(child, str):
            return _SPACE.sub(" ", child)
        if self._is_left_out(child, around=False):
            return ""
        name = child.name
        if name == "br":
            return "\n"
        if name == "img":
            return self._image(child)
        if name in _CODE:
            return _code(_SPACE.sub(" ", _raw_text(child)).strip())
        text = self._inline(child.children)
        if name == "a":
            return self._link(child, text)
        mark = _MARKS.get(name, "")
        return _surround(text, mark) if mark else text

    def _link(self, element: Element, text: str) -> str:
        label = " ".join(text.split())
        url = _resolve_link(self.base, element.attributes.get("href", ""))
        if not url or not label:
            return text
        return f"[{label}]({url})"

    def _image(self, element: Element) -> str:
        alt = " ".join(element.attributes.get("alt", "").split())
        url = _resolve_link(self.base, element.attributes.get("src", ""))
        return f"![{alt}]({url})" if alt and url else ""


def _rows(table: Element) -> list[list[Element]]:
    """Return the cells of a table by rows, without those of tables inside it."""
    rows: list[list[Element]] = []
    for child in table.children:
        if not isinstance(child, Element) or _is_hidden(child):
            continue
        if child.name == "tr":
            cells = [cell for cell in child.children if isinstance(cell, Element) and cell.name in ("td", "th")]
            rows.append([cell for cell in cells if not _is_hidden(cell)])
        elif child.name in ("thead", "tbody", "tfoot"):
            rows += _rows(child)
        elif child.name == "caption":
            rows.insert(0, [child])
    return [row for row in rows if row]


def _is_hidden(element: Element) -> bool:
    """Return whether attributes of the element hide it; style sheets are not read."""
    attributes = element.attributes
    if not attributes:
        return False
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden", "").lower() == "true"
        or (element.name == "input" and attributes.get("type") == "hidden")
        or _HIDING_STYLE.search(attributes.get("style", "")) is not None
        or not _HIDING_CLASS.isdisjoint(attributes.get("class", "").split())
    )


def _first(element: Element, name: str) -> Element | None:
    return next((inner for inner in element.walk() if inner.name == name), None)


def _raw_text(element: Element) -> str:
    return "".join(child if isinstance(child, str) else _raw_part(child) for child in element.children)


def _raw_part(element: Element) -> str:
    if element.name == "br":
        return "\n"
    return "" if _is_hidden(element) else _raw_text(element)


def _tidy(text: str) -> str:
    """Strip lines and drop empty ones."""
    lines = (" ".join(line.split(" ")).strip() for line in text.split("\n"))
    return "\n".join(_SPACE.sub(" ", line) for line in lines if line)


def _surround(text: str, mark: str) -> str:
    """Put a text between marks; blanks at its ends stay outside, as Markdown requires."""
    inner = text.strip()
    if not inner or "\n" in inner:
        return text
    left, right = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return f"{left}{mark}{inner}{mark}{right}"


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if text else ""


def _resolve_link(base: str, reference: str) -> str:
    """Make a link absolute; empty when its scheme cannot be opened."""
    try:
        url = urljoin(base, reference.strip())
    except ValueError:
        return ""
    if not reference or reference.startswith("#") or not url.lower().startswith(("http://", "https://", "mailto:")):
        return ""
    return "".join(_URL_ESCAPES.get(char, char) for char in url)


def _list_start(element: Element) -> int:
    start = element.attributes.get("start", "")
    return int(start) if start.isascii() and start.isdigit() and len(start) < 7 else 1
