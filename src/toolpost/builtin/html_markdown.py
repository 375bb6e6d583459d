"""Converts the readable content of a web page to Markdown: without scripts, navigation and hidden text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin

from msgspec import Struct

from toolpost.builtin.html_tree import Child, Element

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Cell = list[str]

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
# fmt: off
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hr",
    "html", "li", "main", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "td", "tfoot", "th",
    "thead", "tr", "ul",
})
_NEVER = frozenset({
    "head", "title", "button", "select", "option", "input", "textarea", "datalist", "dialog", "object", "embed",
    "canvas", "audio", "video",
})
# fmt: on


class MarkdownPage(NamedTuple):
    """The title and the content of a page, as Markdown."""

    title: str
    markdown: str


def page_markdown(tree: Element, *, base_url: str) -> MarkdownPage:
    """Convert a page to Markdown; links become absolute."""
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
        """Convert an element to blocks; text and inline elements between blocks are paragraphs."""
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
        """Return whether an element is a block; an inline element that contains a block is one too."""
        if element.name in _BLOCKS:
            return True
        inner = (child for child in element.children if isinstance(child, Element))
        return element.name not in _CODE and any(child.name in _BLOCKS for child in inner)

    def _block(self, element: Element, *, around: bool) -> list[str]:
        name = element.name
        if self._is_dropped(element, around=around):
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

    def _is_dropped(self, element: Element, *, around: bool) -> bool:
        if element.name in _NEVER or _is_hidden(element):
            return True
        return element.name in _AROUND and around and not self.whole

    def _list(self, element: Element) -> list[str]:
        lines: list[str] = []
        number = _list_start(element)
        for item in (child for child in element.children if isinstance(child, Element)):
            if self._is_dropped(item, around=False):
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
        return _table_blocks([[self._blocks(cell, around=False) for cell in cells] for cells in _rows(element)])

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
        if self._is_dropped(child, around=False):
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


def _table_blocks(rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Convert rows of cells to one Markdown table; convert a layout table to its blocks."""
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


def _rows(table: Element) -> list[list[Element]]:
    """Return the cells of a table by rows, without those of nested tables."""
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
    """Return whether attributes hide the element; style sheets are not read."""
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
    """Return the unformatted text below an element, without hidden elements."""
    parts: list[str] = []
    for child in element.children:
        if isinstance(child, str):
            parts.append(child)
        elif child.name == "br":
            parts.append("\n")
        elif not _is_hidden(child):
            parts.append(_raw_text(child))
    return "".join(parts)


def _tidy(text: str) -> str:
    """Strip lines and drop empty ones."""
    lines = (" ".join(line.split(" ")).strip() for line in text.split("\n"))
    return "\n".join(_SPACE.sub(" ", line) for line in lines if line)


def _surround(text: str, mark: str) -> str:
    """Put a text between markers; blanks at its ends stay outside, as Markdown requires."""
    inner = text.strip()
    if not inner or "\n" in inner:
        return text
    left, right = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return f"{left}{mark}{inner}{mark}{right}"


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if text else ""


def _resolve_link(base: str, reference: str) -> str:
    """Make a link absolute; return an empty string if its scheme cannot be opened."""
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
