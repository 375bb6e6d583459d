"""Redaction: known secrets by exact value, secret-like names and what a schema marks, before anything is told."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, quote_plus

from toolpost.contracts.events import JsonText
from toolpost.schema.secrets import is_secret_name, is_secret_path, secret_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from toolpost.contracts.spec import ToolSpec
    from toolpost.schema.secrets import SecretPaths

MASK = "[redacted]"
_SHORTEST_SECRET = 4  # shorter values would blot out ordinary text
_SHORTEST_INSIDE_BASE64 = 8
_DEEPEST = 100  # what lies deeper is masked unseen, because looking would overflow the stack
_LARGEST_NUMBER = 10**100
_ARGUMENT_KEYS = ("params", "input", "arguments")
_RESULT_KEYS = ("summary", "result")
_SCALARS = frozenset({str, int, float, bool})
_TELLING = frozenset({str, int, float})
_PLAIN = frozenset({*_SCALARS, type(None)})
_NAMES = frozenset({str})
_NOTHING: SecretPaths = frozenset()


class Redactor:
    """Knows the secrets of one Toolbox and takes them out of whatever is to be told."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Remember more secrets, also as they look in JSON, in a URL and in base64."""
        for secret in secrets:
            if len(secret.strip()) >= _SHORTEST_SECRET:
                self._forms.update(_forms_of(secret))
        longest_first = sorted(self._forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def knowing(self, secrets: Iterable[str]) -> Redactor:
        """A redactor that knows more secrets, such as those in the arguments of one call."""
        other = Redactor()
        other._forms = set(self._forms)
        other.learn(secrets)
        return other

    def text(self, text: str) -> str:
        """A text without the known secrets."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def value(self, value: Any, *, secret: SecretPaths = _NOTHING, path: tuple[str, ...] = ()) -> Any:
        """A JSON value without known secrets, secret-like names and marked paths; what is not JSON becomes text."""
        if type(value) is str:
            return self.text(value)
        if value is None or type(value) is bool:
            return value
        if type(value) is int or type(value) is float:
            return self._number(value)
        return self._composite(value, secret, path)

    def _composite(self, value: Any, secret: SecretPaths, path: tuple[str, ...]) -> Any:
        match value:
            case JsonText():
                return self.value(json.loads(value), secret=secret, path=path)
            case dict() | Mapping():
                members = cast("Mapping[object, Any]", value)
                return {
                    self.text(str(key)): self._member(str(key), part, secret, path) for key, part in members.items()
                }
            case list() | tuple():
                return [self._member("*", part, secret, path) for part in cast("Sequence[Any]", value)]
            case int() | float():
                return self._number(value)
            case _:
                return self.text(str(value))

    def _number(self, value: float) -> Any:
        """A number that is no secret; a passcode may come as one."""
        if self._pattern is None or not -_LARGEST_NUMBER < value < _LARGEST_NUMBER:
            return value
        return MASK if self._pattern.fullmatch(str(value)) else value

    def _member(self, key: str, item: Any, secret: SecretPaths, path: tuple[str, ...]) -> Any:
        if item is None:
            return None
        if not secret and type(item) in _SCALARS:
            return MASK if is_secret_name(key) else self.value(item)
        below = (*path, key)
        if is_secret_name(key) or (secret and is_secret_path(below, secret)) or len(below) > _DEEPEST:
            return MASK
        return self.value(item, secret=secret, path=below)

    def for_tool(self, spec: ToolSpec) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """The redaction of one tool's events; its schemas are read when the first event is."""
        marked: dict[str, SecretPaths] | None = None

        def redact(facts: Mapping[str, Any]) -> dict[str, Any]:
            nonlocal marked
            if marked is None:
                marked = _marked_facts(spec)
            return {key: self._fact(fact, marked.get(key, _NOTHING)) for key, fact in facts.items()}

        return redact

    def plain(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The redaction of events that belong to no known tool; the keys of facts are ours and name no secrets."""
        return {key: self._fact(fact, _NOTHING) for key, fact in facts.items()}

    def _fact(self, fact: Any, secret: SecretPaths) -> Any:
        if not secret and self._pattern is None and _is_harmless(fact):
            return fact
        if () in secret:  # the whole of it is one
            return MASK
        return self.value(fact, secret=secret)


def secret_values(arguments: Any, marked: SecretPaths, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The texts and numbers in arguments that stand under secret-like names or where the schema marks them."""
    for key, part in _parts(arguments) if len(path) < _DEEPEST else ():
        below = (*path, key)
        if is_secret_name(key) or is_secret_path(below, marked):
            yield from _texts(part)
        else:
            yield from secret_values(part, marked, below)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    if type(value) in _TELLING:
        yield str(value)
    for _, part in _parts(value) if depth < _DEEPEST else ():
        yield from _texts(part, depth + 1)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The members of an object by name, the items of a list under `*`."""
    if isinstance(value, Mapping):
        for key, part in cast("Mapping[object, Any]", value).items():
            yield str(key), part
    elif isinstance(value, (list, tuple)):
        for part in cast("Sequence[Any]", value):
            yield "*", part


def _is_harmless(fact: Any) -> bool:
    """Whether a fact is plain values under names that tell of no secret: most are, and need no second look."""
    if fact.__class__ in _PLAIN:
        return True
    return (
        fact.__class__ is dict
        and _PLAIN.issuperset(map(type, fact.values()))
        and _NAMES.issuperset(map(type, fact))
        and not any(map(is_secret_name, fact))
    )


def _marked_facts(spec: ToolSpec) -> dict[str, SecretPaths]:
    """Where secrets lie in those facts that a tool's schemas describe."""
    arguments, results = secret_paths(spec.input_schema), secret_paths(spec.output_schema or {})
    return {**dict.fromkeys(_ARGUMENT_KEYS, arguments), **dict.fromkeys(_RESULT_KEYS, results)}


def _forms_of(secret: str) -> set[str]:
    raw = secret.encode("utf-8", "surrogatepass")
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(raw, safe=""),
        quote(raw),
        quote_plus(raw),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        *_inside_base64(raw),
    }


def _inside_base64(raw: bytes) -> Iterator[str]:
    """The characters that base64 has for a secret in the middle of a text, such as `user:secret`, at each alignment."""
    for before in range(3):
        shifted = b"\0" * before + raw
        first, last = -(-before * 8 // 6), len(shifted) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            core = encode(shifted)[first:last].decode()
            if len(core) >= _SHORTEST_INSIDE_BASE64:
                yield core
