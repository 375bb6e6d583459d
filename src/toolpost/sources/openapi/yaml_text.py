"""Parse YAML 1.2 text to plain data: dicts with string keys, lists and scalars."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

import yaml
from yaml import events

from toolpost.schema.json_values import is_array, is_object

MAX_VALUES = 3_000_000
MAX_DEPTH = 250
# Pure Python takes ten seconds for each megabyte.
_LONGEST_FOR_PURE = 1_000_000
_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVED_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "null"))
_MERGE = "<<"
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# A number with a leading zero is octal in YAML 1.1 and decimal in 1.2; such scalars stay strings.
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,1000})", re.ASCII)
_BASED = re.compile(r"0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
# PyYAML implements YAML 1.1: it rejects control characters, and U+0085, U+2028 and U+2029 end a line. In YAML 1.2
# (§5.4) the last three are text, other parsers accept all of them, and descriptions of real APIs contain them. They
# are passed through PyYAML as an escape character and four hexadecimal digits. The escape character is one of the
# noncharacters that Unicode reserves for the internal use of programs.
_ESCAPE = "\ufdd0"
_UNREADABLE = re.compile(f"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff{_ESCAPE}]")
_ESCAPED = re.compile(f"{_ESCAPE}([0-9a-f]{{4}})")
_CHUNK = 1 << 20
# Header of a block scalar; the lines after it are its text.
_BLOCK_HEADER = re.compile(r"(?:^|[\s:-])[|>][-+0-9]{0,2}[ \t]*(?:#.*)?$")
_LEADING_TABS = re.compile(r"( *)(\t[ \t]*)(.*)", re.DOTALL)


def load_yaml(text: str) -> Any:
    """Parse the first document of a YAML text to dicts with string keys, lists and scalars."""
    escaped = _escape_unreadable(text)
    try:
        return _build(escaped, _FAST, is_escaped=escaped is not text)
    except yaml.YAMLError as error:
        message = _describe_error(error)
    # The two parsers of PyYAML differ about tabs in block scalars, and real documents contain them.
    for respelled, loader in _respellings(escaped):
        try:
            return _build(respelled, loader, is_escaped=True)
        except yaml.YAMLError:
            continue
    raise YamlError(message)


def _respellings(text: str) -> Iterable[tuple[str, Any]]:
    if "\t" not in text:
        return
    yield "".join(_escape_block_tabs(text.splitlines(keepends=True))), _FAST
    if len(text) <= _LONGEST_FOR_PURE:
        yield text, yaml.SafeLoader
    yield text.replace("\t", "  "), _FAST


def _escape_unreadable(text: str) -> str:
    # In chunks: a regex search over the whole text would block other threads.
    chunks = [text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)]
    if not any(map(_UNREADABLE.search, chunks)):
        return text
    return "".join(_UNREADABLE.sub(lambda match: _escape(match[0]), chunk) for chunk in chunks)


def _escape(character: str) -> str:
    return f"{_ESCAPE}{ord(character):04x}"


def _escape_block_tabs(lines: Iterable[str]) -> Iterator[str]:
    """Escape tabs at the start of the lines of block scalars."""
    outside = -1  # within a block scalar: the indentation of the line with its header
    for line in lines:
        indentation = len(line) - len(line.lstrip(" "))
        if line.strip() and indentation <= outside:
            outside = -1
        if outside >= 0 and (match := _LEADING_TABS.match(line)):
            spaces, tabs, rest = match.groups()
            yield f"{spaces}{tabs.replace(chr(9), _escape(chr(9)))}{rest}" if rest.strip() else "\n"
            continue
        if outside < 0 and _BLOCK_HEADER.search(line.rstrip("\r\n")):
            outside = indentation
        yield line


def _describe_error(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        return f"{where}{error.problem or error.context}"
    return str(getattr(error, "reason", error))


def _build(text: str, loader: Any, *, is_escaped: bool) -> Any:
    # The stubs of yaml lack the events.
    parsed = cast("Iterable[Any]", yaml.parse(text, Loader=loader))  # pyright: ignore[reportUnknownMemberType]
    return _Builder(is_escaped=is_escaped).build(parsed)


class YamlError(ValueError):
    """Invalid YAML text."""


class _Builder:
    """Builder of data from parser events, without recursion and with a limit on values that anchors repeat."""

    def __init__(self, *, is_escaped: bool) -> None:
        self._is_escaped = is_escaped
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Anchored | None] = {}
        self._plain: dict[str, Any] = {}
        self._root: Any = None

    def build(self, parsed: Iterable[Any]) -> Any:
        for event in parsed:
            kind = event.__class__
            if kind is events.ScalarEvent:
                self._scalar(event)
            elif kind is events.MappingStartEvent:
                self._begin({}, event)
            elif kind is events.SequenceStartEvent:
                self._begin([], event)
            elif kind is events.AliasEvent:
                self._alias(event)
            elif kind is events.MappingEndEvent or kind is events.SequenceEndEvent:
                self._end()
            elif kind is events.DocumentEndEvent:
                break
        return self._root

    def _begin(self, value: dict[str, Any] | list[Any], event: Any) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise YamlError(f"line {event.start_mark.line + 1}: nested deeper than {MAX_DEPTH} levels")
        if self._expects_key():
            raise YamlError(f"line {event.start_mark.line + 1}: a key must be a string")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._stack.append(_Open(value, event.anchor))

    def _expects_key(self) -> bool:
        top = self._stack[-1] if self._stack else None
        return top is not None and top.key is None and isinstance(top.value, dict)

    def _end(self) -> None:
        ended = self._stack.pop()
        if ended.merged and isinstance(ended.value, dict):
            ended.value = _merge(ended.value, ended.merged)
        if ended.anchor is not None:
            self._anchors[ended.anchor] = _Anchored(ended.value, ended.weight)
        self._place(ended.value, ended.weight)

    def _scalar(self, event: Any) -> None:
        text = event.value
        if self._is_escaped and _ESCAPE in text:
            text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
        if self._expects_key():
            self._stack[-1].key = text
            return
        plain = event.implicit[0] or event.tag in _RESOLVED_TAGS
        value = self._resolve_plain(text) if plain else text
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, 1)
        self._place(value, 1)

    def _resolve_plain(self, text: str) -> Any:
        try:
            return self._plain[text]
        except KeyError:
            value = self._plain[text] = plain_value(text)
            return value

    def _alias(self, event: Any) -> None:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise YamlError(
                f"line {event.start_mark.line + 1}: *{event.anchor} names nothing, or a value that contains it"
            )
        if self._expects_key():
            self._stack[-1].key = str(anchored.value)
        else:
            self._place(anchored.value, anchored.weight)

    def _place(self, value: Any, weight: int) -> None:
        if not self._stack:
            self._root = value
            return
        top = self._stack[-1]
        top.weight += weight
        if top.weight > MAX_VALUES:
            raise YamlError(f"it contains more than {MAX_VALUES:,} values, including those that its anchors repeat")
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is not None:
            if top.key == _MERGE:
                top.merged.append(value)
            else:
                top.value[top.key] = value
            top.key = None


def _merge(own: dict[str, Any], merged: list[Any]) -> dict[str, Any]:
    """Merge `<<` mappings into a mapping; its own keys win, then the first mapping."""
    whole: dict[str, Any] = {}
    for value in merged:
        for mapping in value if is_array(value) else [value]:
            if is_object(mapping):
                whole = {**mapping, **whole}
    return {**whole, **own}


class _Open:
    __slots__ = ("anchor", "key", "merged", "value", "weight")

    def __init__(self, value: dict[str, Any] | list[Any], anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.key: str | None = None
        self.merged: list[Any] = []
        self.weight = 1


class _Anchored(NamedTuple):
    """Value of an anchor, and the number of values in it."""

    value: Any
    weight: int


def plain_value(text: str) -> Any:
    """Return the value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if len(text) < 100 and _FLOAT.fullmatch(text):
        number = float(text)
        # JSON has no infinity.
        return number if math.isfinite(number) else text
    return text
