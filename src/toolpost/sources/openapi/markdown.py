"""Convert HTML in descriptions to Markdown, and shorten descriptions."""

from __future__ import annotations

import html
import re

_SENTENCE_END = re.compile(r"[.!?](?=\s)|\n\s*\n")
_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
_MARKS = {"b": "**", "strong": "**", "em": "*", "i": "*", "code": "`", "tt": "`", "kbd": "`", "samp": "`"}
_BLOCK_NAMES = "p|div|h[1-6]|ul|ol|dl|dt|dd|table|thead|tbody|tr|blockquote|pre|section|article|details|summary|hr"
_BLOCK = re.compile(_BLOCK_NAMES)
_OTHERS = "br|li|a|td|th|span|small|sub|sup|u|s|font|img|abbr|center"
# Only real HTML tags: `<id>` and the like are placeholders.
_TAG = re.compile(
    rf"<(?P<end>/?)(?P<name>{'|'.join([*_MARKS, _BLOCK_NAMES, _OTHERS])})(?P<more>(?:\s[^<>]*)?)/?>", re.IGNORECASE
)
_HREF = re.compile(r"""\shref\s*=\s*["']?(https?://[^\s"'<>]+)""", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:[a-zA-Z]{2,8}|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")
_GAPS = re.compile(r"\n(?:[ \t]*\n)+")


def html_to_markdown(text: str) -> str:
    """Convert HTML tags and entities to Markdown; code spans stay unchanged."""
    if "<" not in text and "&" not in text:
        return text
    pieces = _CODE.split(text)
    pieces[::2] = [_without_tags(piece) for piece in pieces[::2]]
    changed = "".join(pieces)
    return text if changed == text else _GAPS.sub("\n\n", changed).strip()


def _without_tags(text: str) -> str:
    links: list[str] = []

    def convert_tag(tag: re.Match[str]) -> str:
        name = (tag["name"] or "").lower()
        if name == "a":
            if tag["end"]:
                address = links.pop() if links else ""
                return f"]({address})" if address else ""
            match = _HREF.search(tag["more"])
            links.append(match[1] if match else "")
            return "[" if match else ""
        if name == "li":
            return "" if tag["end"] else "\n- "
        if name == "br":
            return "\n"
        if name in ("td", "th"):
            return " "
        return _MARKS.get(name, "\n\n" if _BLOCK.fullmatch(name) else "")

    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), _TAG.sub(convert_tag, text))


def shorten(text: str, limit: int) -> str:
    """Shorten a text to whole sentences, or else to words."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head = text[:limit]
    ends = [match.end() for match in _SENTENCE_END.finditer(text, 0, limit + 1) if match.end() <= limit]
    if ends and ends[-1] >= limit // 3:
        return head[: ends[-1]].rstrip()
    words = head[: max(limit - 1, 0)].rsplit(maxsplit=1)[0] if " " in head else head[: max(limit - 1, 0)]
    return f"{words}…" if words else ""
