"""Derive names and descriptions of tools, arguments and definitions: legal, unique, in Markdown, of limited length."""

from __future__ import annotations

import html
import re
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

_NOT_IN_TOOL = re.compile(r"[^A-Za-z0-9_-]+")
# Property keys that every model provider accepts.
_NOT_IN_ARGUMENT = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_ARGUMENT = 64
_LONGEST_DEFINITION = 80
# Tokens of a JSON Pointer that make no telling name.
_EMPTY_WORDS = frozenset(
    {"schema", "items", "allOf", "anyOf", "oneOf", "not", "additionalProperties", "schemas", "properties"}
)


class UniqueNames:
    """Set of unique names; a repeated one gets a number."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def is_taken(self, name: str) -> bool:
        """Return whether a name is reserved."""
        return name in self._next

    def reserve(self, name: str) -> str:
        """Reserve the name, or `name_2`, `name_3` and so on."""
        if name not in self._next:
            self._next[name] = 2
            return name
        number = self._next[name]
        while f"{name}_{number}" in self._next:
            number += 1
        self._next[name] = number + 1
        return self.reserve(f"{name}_{number}")


def tool_name(operation_id: Any, method: str, path: str) -> str:
    """Return the operationId in legal characters, or a slug of method and path."""
    if isinstance(operation_id, str):
        legal = _NOT_IN_TOOL.sub("_", operation_id).strip("_")
        if legal:
            return legal
    slug = _NOT_IN_TOOL.sub("_", path).strip("_")
    return f"{_NOT_IN_TOOL.sub('_', method).lower()}_{slug or 'root'}"


def argument_name(parameter: str) -> str:
    """Return the argument name of a parameter: `filter[name]` is `filter_name`, `$top` is `top`."""
    legal = _NOT_IN_ARGUMENT.sub("_", parameter)
    if legal != parameter:
        legal = legal.strip("_")
    return legal[:_LONGEST_ARGUMENT] or "parameter"


class DefinitionNames:
    """Unique names of referenced schemas, by identity of the schema."""

    def __init__(self) -> None:
        self._names = UniqueNames()
        self._known: dict[int, str] = {}
        self._nodes: list[Any] = []

    def of(self, node: Any, reference: str) -> str:
        """Return the name of a schema, derived from the first reference to it."""
        name = self._known.get(id(node))
        if name is None:
            name = self._known[id(node)] = self._names.reserve(_definition_name(reference))
            # Keep a reference, so that its id() is not reused.
            self._nodes.append(node)
        return name


def _definition_name(reference: str) -> str:
    address, _, fragment = reference.partition("#")
    parts = [unquote(part).replace("~1", "/").replace("~0", "~") for part in fragment.split("/") if part]
    if not parts:
        parts = [PurePosixPath(urlsplit(address).path).stem]
    telling = parts[-1:]
    if telling[0] in _EMPTY_WORDS or telling[0].isdigit():
        telling = [part for part in parts if part not in _EMPTY_WORDS][-3:]
    legal = _NOT_IN_ARGUMENT.sub("_", "_".join(telling)).strip("_")
    return legal[:_LONGEST_DEFINITION] or "schema"


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
            return _link(tag, links)
        if name == "li":
            return "" if tag["end"] else "\n- "
        if name == "br":
            return "\n"
        if name in ("td", "th"):
            return " "
        return _MARKS.get(name, "\n\n" if _BLOCK.fullmatch(name) else "")

    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), _TAG.sub(convert_tag, text))


def _link(tag: re.Match[str], links: list[str]) -> str:
    """Convert one end of a link to `[` or `](url)`; links to other schemes than http keep their text only."""
    if tag["end"]:
        address = links.pop() if links else ""
        return f"]({address})" if address else ""
    match = _HREF.search(tag["more"])
    links.append(match[1] if match else "")
    return "[" if match else ""


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
