"""A web page as Markdown: what a person would read of it, with its links, lists and tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin

from toolpost.builtin.html_tables import table_lines
from toolpost.builtin.html_tree import Element, parse_html, words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolpost.builtin.html_tree import Child

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_MARKS = {"b": "**", "strong": "**", "em": "*", "i": "*", "del": "~~", "s": "~~"}
_CODE = frozenset({"code", "kbd", "samp", "tt"})
_BLOCKS = words(
    "address article aside blockquote body caption center dd details div dl dt fieldset figcaption figure "
    "footer form h1 h2 h3 h4 h5 h6 head header hr html li main nav ol p pre section summary table tbody "
    "td tfoot th thead tr ul"
)
_NEVER = words("head title button select option input textarea datalist dialog object embed canvas audio video")
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


class Page(NamedTuple):
    """A page's title, and what it says as Markdown."""

    title: str
    markdown: str


def page_markdown(source: str, *, base_url: str) -> Page:
    """Read a page; links in it are written in full, from its URL."""
    tree = parse_html(source)
    base = _first(tree, "base")
    start = _joined(base_url, base.attributes.get("href", "")) or base_url if base else base_url
    title = _first(tree, "title")
    text = _Writer(start).markdown(tree) or _Writer(start, whole=True).markdown(tree)
    return Page(_flat(title) if title else "", text)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes elements; `whole` keeps what stands around the content of a page."""

    base: str
    whole: bool = False

    def markdown(self, tree: Element) -> str:
        return _GAPS.sub("\n\n", "\n\n".join(self._blocks(tree, around=True))).strip()

    def _blocks(self, element: Element, *, around: bool) -> list[str]:
        """The blocks in an element; texts and inline elements between them are paragraphs."""
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
        text = _tidied(self._inline(inline))
        inline.clear()
        if text:
            blocks.append(text)

    def _is_block(self, element: Element) -> bool:
        """Whether an element stands on lines of its own; an inline one that holds such an element does, too."""
        if element.name in _BLOCKS:
            return True
        inner = (child for child in element.children if isinstance(child, Element))
        return element.name not in _CODE and any(child.name in _BLOCKS for child in inner)

    def _block(self, element: Element, *, around: bool) -> list[str]:
        name = element.name
        if self._is_left_out(element, around=around):
            return []
        if name in _HEADINGS:
            text = _tidied(self._inline(element.children)).replace("\n", " ")
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
        number = _start_of(element)
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
        return _marked(text, mark) if mark else text

    def _link(self, element: Element, text: str) -> str:
        label = " ".join(text.split())
        url = _joined(self.base, element.attributes.get("href", ""))
        if not url or not label:
            return text
        return f"[{label}]({url})"

    def _image(self, element: Element) -> str:
        alt = " ".join(element.attributes.get("alt", "").split())
        url = _joined(self.base, element.attributes.get("src", ""))
        return f"![{alt}]({url})" if alt and url else ""


def _rows(table: Element) -> list[list[Element]]:
    """The cells of a table by rows; those of tables inside it are not its own."""
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
    """Whether the page itself says that nobody should see the element; what only its style sheets say is not known."""
    told = element.attributes
    if not told:
        return False
    return (
        "hidden" in told
        or told.get("aria-hidden", "").lower() == "true"
        or (element.name == "input" and told.get("type") == "hidden")
        or _HIDING_STYLE.search(told.get("style", "")) is not None
        or not _HIDING_CLASS.isdisjoint(told.get("class", "").split())
    )


def _first(element: Element, name: str) -> Element | None:
    waiting = [element]
    while waiting:
        found = waiting.pop()
        if found.name == name:
            return found
        waiting += [child for child in reversed(found.children) if isinstance(child, Element)]
    return None


def _raw_text(element: Element) -> str:
    return "".join(child if isinstance(child, str) else _raw_part(child) for child in element.children)


def _raw_part(element: Element) -> str:
    if element.name == "br":
        return "\n"
    return "" if _is_hidden(element) else _raw_text(element)


def _flat(element: Element) -> str:
    return " ".join(_raw_text(element).split())


def _tidied(text: str) -> str:
    """Lines without blanks at their ends, and without empty ones."""
    lines = (" ".join(line.split(" ")).strip() for line in text.split("\n"))
    return "\n".join(_SPACE.sub(" ", line) for line in lines if line)


def _marked(text: str, mark: str) -> str:
    """The text between marks; blanks at its ends stand outside them, as Markdown asks."""
    inner = text.strip()
    if not inner or "\n" in inner:
        return text
    left, right = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return f"{left}{mark}{inner}{mark}{right}"


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if text else ""


def _joined(base: str, reference: str) -> str:
    """A link in full; empty when it leads nowhere that can be opened."""
    try:
        url = urljoin(base, reference.strip())
    except ValueError:
        return ""
    if not reference or reference.startswith("#") or not url.lower().startswith(("http://", "https://", "mailto:")):
        return ""
    return "".join(_URL_ESCAPES.get(char, char) for char in url)


_URL_ESCAPES = {" ": "%20", "(": "%28", ")": "%29", "<": "%3C", ">": "%3E", "\n": "", "\t": "", "\r": ""}


def _start_of(element: Element) -> int:
    written = element.attributes.get("start", "")
    return int(written) if written.isascii() and written.isdigit() and len(written) < 7 else 1
