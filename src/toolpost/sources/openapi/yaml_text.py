"""Parse YAML to JSON data by the YAML 1.2 core schema, so that dates, `on` and `=` stay strings."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import yaml
from yaml import events

from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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
# A number with a leading zero is octal in YAML 1.1 and decimal in 1.2; such scalars stay text.
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,1000})", re.ASCII)
_BASED = re.compile(r"0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)


class YamlError(ValueError):
    """Invalid YAML text."""


def load_yaml(text: str) -> Any:
    """Parse the first document of a YAML text to dicts with string keys, lists and scalars."""
    escaped = _EscapedText.over(text)
    try:
        return _build(escaped.text, _FAST, escaped)
    except yaml.YAMLError as error:
        message = _describe_error(error)
    # The two parsers differ about tabs inside of block scalars, and real documents have them.
    for respelled, loader in _respellings(escaped):
        try:
            return _build(respelled, loader, escaped)
        except yaml.YAMLError:
            continue
    raise YamlError(message)


def _respellings(escaped: _EscapedText) -> Iterable[tuple[str, Any]]:
    text = escaped.text
    if "\t" not in text:
        return
    yield escaped.with_tabs(), _FAST
    if len(text) <= _LONGEST_FOR_PURE:
        yield text, yaml.SafeLoader
    yield text.replace("\t", "  "), _FAST


# YAML 1.2 §5.4: the separators of lines and paragraphs are text; for PyYAML, which is YAML 1.1, they end a line.
# Control characters are outside of both versions, but other parsers take them, and some descriptions hold them.
_UNREADABLE = "\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff"
_TAB = "\t"
_PRIVATE_ESCAPE = re.compile(r"\\u([eEfF][0-9a-fA-F]{3})")
_CHUNK = 1 << 20
# Header of a block scalar; the lines after it are its text.
_BLOCK_HEADER = re.compile(r"(?:^|[\s:-])[|>][-+0-9]{0,2}[ \t]*(?:#.*)?$")
_LEADING_TABS = re.compile(r"( *)(\t[ \t]*)(.*)", re.DOTALL)


class _EscapedText(NamedTuple):
    """Text with characters that PyYAML rejects replaced by private-use ones, and the mapping back."""

    original: str
    text: str
    back: Mapping[int, int]

    @classmethod
    def over(cls, text: str) -> _EscapedText:
        odd = _characters(text, re.compile(f"[{_UNREADABLE}]"))
        if _TAB in text:
            odd.add(_TAB)
        if not odd:
            return cls(text, text, {})
        private = {ord(found) for found in _characters(text, re.compile("[\ue000-\uf8ff]"))}
        private |= {int(digits, 16) for digits in _characters(text, _PRIVATE_ESCAPE)}
        free = (code for code in range(0xE000, 0xF900) if code not in private)
        there = dict(zip(map(ord, sorted(odd)), free, strict=False))
        back = {code: original for original, code in there.items()}
        there.pop(ord(_TAB), None)  # almost always whitespace
        if not there:
            return cls(text, text, back)
        return cls(text, "".join(chunk.translate(there) for chunk in _chunks(text)), back)

    def with_tabs(self) -> str:
        """Return the text with tabs at the start of block scalar lines protected."""
        tab = next((chr(code) for code, original in self.back.items() if original == ord(_TAB)), _TAB)
        return "".join(_with_block_tabs(self.text.splitlines(keepends=True), tab))

    def restore(self, scalar: str) -> str:
        """Restore the original characters of a scalar."""
        return scalar.translate(self.back)


def _characters(text: str, kind: re.Pattern[str]) -> set[str]:
    return {found for chunk in _chunks(text) for found in kind.findall(chunk)}


def _chunks(text: str) -> Iterator[str]:
    """Split the text: a regex search over all of it would block other threads."""
    return (text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK))


def _with_block_tabs(lines: Iterable[str], tab: str) -> Iterator[str]:
    outside = -1  # the indentation of the line with the header, while within its block scalar
    for line in lines:
        indentation = len(line) - len(line.lstrip(" "))
        if line.strip() and indentation <= outside:
            outside = -1
        if outside >= 0 and (found := _LEADING_TABS.match(line)):
            spaces, tabs, rest = found.groups()
            yield f"{spaces}{tabs.replace(_TAB, tab)}{rest}" if rest.strip() else "\n"
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


class _Anchored(NamedTuple):
    """Value of an anchor, and the number of values it stands for."""

    value: Any
    weight: int


class _Open:
    """Mapping or sequence under construction."""

    __slots__ = ("anchor", "key", "merged", "value", "weight")

    def __init__(self, value: dict[str, Any] | list[Any], anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.key: str | None = None
        self.merged: list[Any] = []
        self.weight = 1


def _build(text: str, loader: Any, escaped: _EscapedText) -> Any:
    # The stubs of yaml lack the events.
    parsed = cast("Iterable[Any]", yaml.parse(text, Loader=loader))  # pyright: ignore[reportUnknownMemberType]
    return _Builder(None if text is escaped.original else escaped).build(parsed)


class _Builder:
    """Builds data from parser events, without recursion and with a limit on repeated values."""

    def __init__(self, escaped: _EscapedText | None) -> None:
        self._escaped = escaped
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
            raise YamlError(f"line {event.start_mark.line + 1}: a key must be text")
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
        text = event.value if self._escaped is None else self._escaped.restore(event.value)
        if self._expects_key():
            self._stack[-1].key = text
            return
        plain = event.implicit[0] or event.tag in _RESOLVED_TAGS
        value = self._resolved(text) if plain else text
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, 1)
        self._place(value, 1)

    def _resolved(self, text: str) -> Any:
        try:
            return self._plain[text]
        except KeyError:
            value = self._plain[text] = plain_value(text)
            return value

    def _alias(self, event: Any) -> None:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise YamlError(f"line {event.start_mark.line + 1}: *{event.anchor} names nothing, or what it is part of")
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
            raise YamlError(f"it holds more than {MAX_VALUES:,} values, those that its anchors repeat included")
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
    for given in merged:
        for mapping in given if is_array(given) else [given]:
            if is_object(mapping):
                whole = {**mapping, **whole}
    return {**whole, **own}


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
