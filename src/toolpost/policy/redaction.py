"""Mask secrets in texts, values and events."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable
from urllib.parse import unquote_plus

from toolpost.contracts.events import JsonText
from toolpost.policy.secret_matcher import SecretMatcher
from toolpost.policy.secret_shapes import MASK, mask_secret_shapes, may_have_secret
from toolpost.schema.secrets import SecretPaths, is_secret_name, is_secret_path

LONGEST_MESSAGE = 8000  # a server decides how long its error message is
_DEEPEST = 100  # deeper values are masked without a search, because recursion would overflow the stack
_LARGEST_NUMBER = 10**100
_LONGEST_LOGIN = 256  # name and password in a URL
_ARGUMENT_KEYS = ("params", "input", "arguments")
_RESULT_KEYS = ("summary", "result")
_SCALARS = frozenset({str, int, float, bool})
_SECRET_TYPES = frozenset({str, int, float})
_UNMARKED = frozenset({int, float, bool, type(None)})  # they contain no URL
_NOTHING: SecretPaths = frozenset()
_MARK = "://"
_MOST_NAMES = 4096
_harmless_names: set[str] = set()
# With possessive quantifiers, matching a hostile text takes linear time.
_LOGIN = re.compile(r"(://[^\s/?#@:]*+:)[^\s/?#@]++@")
_FIELD = re.compile(r"([?&;#])([^\s?&;=#]{1,100}+)=([^\s&;#\"'<>\\]++)")
# Names of query parameters; as names of JSON members they are harmless.
_KEYS = frozenset({"key", "sig", "signature", "auth", "x-amz-signature", "x-amz-security-token", "x-goog-signature"})


class Redactor:
    """The secrets of one Toolbox, and methods that mask them in text, JSON values and events."""

    def __init__(self, secrets: Iterable[str] = (), *, beside: tuple[SecretMatcher, ...] = ()) -> None:
        self._own = SecretMatcher()
        self._matchers = (*beside, self._own)
        self._is_empty = not beside
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Add secrets, with all their encoded forms."""
        for secret in secrets:
            self._own.learn(secret)
            if "\n" in secret:  # programs may print it line by line
                self._own.learn_lines(secret)
        self._is_empty = self._is_empty and self._own.is_empty

    def join(self, other: Redactor) -> None:
        """Also mask the secrets of another redactor, including those that it learns later."""
        more = [matcher for matcher in other._matchers if matcher not in self._matchers]
        self._matchers = (*more, *self._matchers)
        self._is_empty = self._is_empty and not more

    def with_secrets(self, secrets: Iterable[str]) -> Redactor:
        """Return a redactor with more secrets, such as those in the arguments of one call."""
        other = Redactor(secrets, beside=self._matchers)
        return self if other._own.is_empty else other

    def text(self, text: str) -> str:
        """Return a text with known secrets masked."""
        if self._is_empty:
            return text
        for matcher in self._matchers:
            text = matcher.mask(text, MASK)
        return text

    def redact(self, text: str) -> str:
        """Return a text with known secrets, secrets in URLs and strings with the shape of a secret masked."""
        return mask_secret_shapes(mask_url_secrets(self.text(text)))

    def excerpt(self, text: str, limit: int) -> str:
        """Return the redacted beginning of a text; the cut never leaves a part of a secret.

        Only the beginning is searched, plus the length of the longest secret.
        """
        if len(text) <= limit:
            return self.redact(text)
        beyond = 2 * max(matcher.longest for matcher in self._matchers) + _LONGEST_LOGIN
        window = text[: limit + beyond]
        redacted = self.redact(window)
        if len(window) < len(text):
            redacted = redacted[:-beyond]  # a secret that begins here may end after the window
        return f"{redacted[:limit]}…" if len(redacted) >= limit or len(window) < len(text) else redacted

    def message(self, text: str) -> str:
        """Return a redacted error message, cut to `LONGEST_MESSAGE`."""
        return self.excerpt(text, LONGEST_MESSAGE)

    def texts(self, value: Any) -> Any:
        """Return a JSON value with known secrets masked, regardless of the names of members."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.texts(part) for key, part in cast("Mapping[object, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [self.texts(part) for part in cast("Sequence[Any]", value)]
        return value

    def value(self, value: Any, *, secret: SecretPaths = _NOTHING, path: tuple[str, ...] = ()) -> Any:
        """Return a JSON value with known secrets, secret-like names and marked paths masked; non-JSON becomes text."""
        if type(value) is str:
            return self.redact(value)
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
                return self.redact(str(value))

    def _number(self, value: float) -> Any:
        """Mask a number that is a secret, such as a passcode."""
        if self._is_empty or not -_LARGEST_NUMBER < value < _LARGEST_NUMBER:
            return value
        return MASK if any(str(value) in matcher.numbers for matcher in self._matchers) else value

    def _member(self, key: str, item: Any, secret: SecretPaths, path: tuple[str, ...]) -> Any:
        if item is None:
            return None
        if not secret and type(item) in _SCALARS:
            return MASK if is_secret_name(key) else self.value(item)
        below = (*path, key)
        if is_secret_name(key) or (secret and is_secret_path(below, secret)) or len(below) > _DEEPEST:
            return MASK
        return self.value(item, secret=secret, path=below)

    def for_tool(
        self, *, arguments: SecretPaths, results: SecretPaths
    ) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        """Return the redaction of one tool's events, by the paths that its schemas mark as secret."""
        if not arguments and not results:
            return self.plain
        marked = {**dict.fromkeys(_ARGUMENT_KEYS, arguments), **dict.fromkeys(_RESULT_KEYS, results)}

        def redact(facts: Mapping[str, Any]) -> dict[str, Any]:
            return {key: self._fact(fact, marked.get(key, _NOTHING)) for key, fact in facts.items()}

        return redact

    def plain(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Redact the facts of an event without marked paths; Toolpost defines the keys, and none names a secret."""
        if self._is_empty and facts.__class__ is dict and _are_harmless(facts.values()):
            return cast("dict[str, Any]", facts)
        return {key: self._fact(fact, _NOTHING) for key, fact in facts.items()}

    def _fact(self, fact: Any, secret: SecretPaths) -> Any:
        if not secret and self._is_empty and _are_harmless((fact,)):
            return fact
        if () in secret:  # the whole value is a secret
            return MASK
        return self.value(fact, secret=secret)


@runtime_checkable
class RedactingTool(Protocol):
    """A tool with its own secrets, such as the credential of a server behind it."""

    @property
    def redactor(self) -> Redactor:
        """The redactor that knows the tool's secrets."""
        ...


def secret_values(arguments: Any, marked: SecretPaths, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the texts and numbers in arguments under secret-like names or at paths that the schema marks."""
    for key, part in _parts(arguments) if len(path) < _DEEPEST else ():
        below = (*path, key)
        if is_secret_name(key) or is_secret_path(below, marked):
            yield from _texts(part)
        else:
            yield from secret_values(part, marked, below)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    if type(value) in _SECRET_TYPES:
        yield str(value)
    for _, part in _parts(value) if depth < _DEEPEST else ():
        yield from _texts(part, depth + 1)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the members of an object by name, the items of a list under `*`."""
    if isinstance(value, Mapping):
        for key, part in cast("Mapping[object, Any]", value).items():
            yield str(key), part
    elif isinstance(value, (list, tuple)):
        for part in cast("Sequence[Any]", value):
            yield "*", part


def _are_harmless(facts: Iterable[Any]) -> bool:
    """Return whether facts are plain values under harmless names without a URL or the shape of a secret."""
    texts: list[str] = []
    for fact in facts:
        if fact.__class__ is str:
            texts.append(fact)
        elif fact.__class__ is dict:
            if not (fact.keys() <= _harmless_names or _have_harmless_names(fact)):
                return False
            for value in fact.values():
                if value.__class__ is str:
                    texts.append(value)
                elif value.__class__ not in _UNMARKED:
                    return False
        elif fact.__class__ not in _UNMARKED:
            return False
    together = "\n".join(texts)  # one search is faster than one per text
    return _MARK not in together and not may_have_secret(together)


def _have_harmless_names(members: Iterable[Any]) -> bool:
    """Return whether no name is secret-like, and cache the names: the next call has mostly the same."""
    names = list(members)
    if any(name.__class__ is not str or is_secret_name(name) for name in names):
        return False
    if len(_harmless_names) > _MOST_NAMES:
        _harmless_names.clear()
    _harmless_names.update(names)
    return True


def mask_url_secrets(text: str) -> str:
    """Mask the password before a URL's host, and keys and signatures in its query."""
    if _MARK not in text:
        return text
    text = _LOGIN.sub(rf"\g<1>{MASK}@", text)
    return _FIELD.sub(_mask_field, text) if "=" in text else text


def _mask_field(match: re.Match[str]) -> str:
    name = unquote_plus(match[2])
    secret = name.lower() in _KEYS or is_secret_name(name)
    return f"{match[1]}{match[2]}={MASK}" if secret else match[0]
