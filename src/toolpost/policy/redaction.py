"""Redact known secrets, members with secret-like names, paths that a schema marks, and secrets in URLs and logs."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable
from urllib.parse import unquote_plus

from toolpost.contracts.events import JsonText
from toolpost.policy.secret_matcher import SecretMatcher
from toolpost.schema.secrets import is_secret_name, is_secret_path

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from toolpost.schema.secrets import SecretPaths

MASK = "[redacted]"
LONGEST_MESSAGE = 8000  # a server decides how long its error message is
_DEEPEST = 100  # deeper values are masked unseen, because recursion would overflow the stack
_LARGEST_NUMBER = 10**100
_LONGEST_LOGIN = 256  # of a name and a password in a URL
_ARGUMENT_KEYS = ("params", "input", "arguments")
_RESULT_KEYS = ("summary", "result")
_SCALARS = frozenset({str, int, float, bool})
_SECRET_TYPES = frozenset({str, int, float})
_PLAIN = frozenset({*_SCALARS, type(None)})
_NAMES = frozenset({str})
_NOTHING: SecretPaths = frozenset()
_MARK = "://"
# Possessive quantifiers, so that matching a hostile text takes linear time.
_LOGIN = re.compile(r"(://[^\s/?#@:]*+:)[^\s/?#@]++@")
_FIELD = re.compile(r"([?&;#])([^\s?&;=#]{1,100}+)=([^\s&;#\"'<>\\]++)")
# Names of query parameters; as names of JSON members they are harmless.
_KEYS = frozenset({"key", "sig", "signature", "auth", "x-amz-signature", "x-amz-security-token", "x-goog-signature"})
# A filter of a logger does not see the records of its child loggers, so that each needs its own.
LOGGERS = (
    "toolpost.auth",
    "toolpost.events",
    "toolpost.runtime",
    "toolpost.sources.mcp",
    "toolpost.sources.websocket",
    "toolpost.stores",
    "toolpost.toolbox",
)
_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_formatter = logging.Formatter()


class Redactor:
    """The secrets of one Toolbox, and methods that mask them in text, JSON values and events."""

    def __init__(self, secrets: Iterable[str] = (), *, beside: tuple[SecretMatcher, ...] = ()) -> None:
        self._own = SecretMatcher()
        self._matchers = (*beside, self._own)
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Add secrets, with all their encoded forms."""
        for secret in secrets:
            self._own.learn(secret)
            if "\n" in secret:  # it may be printed line by line
                self._own.learn_lines(secret)

    def join(self, other: Redactor) -> None:
        """Also mask the secrets of another redactor, those that it learns later included."""
        more = [matcher for matcher in other._matchers if matcher not in self._matchers]
        self._matchers = (*more, *self._matchers)

    @property
    def _is_empty(self) -> bool:
        return self._own.is_empty and len(self._matchers) == 1

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
        """Return a text with known secrets and those in URLs masked."""
        return mask_url_secrets(self.text(text))

    def excerpt(self, text: str, limit: int) -> str:
        """Return the redacted beginning of a text, with no part of a secret where the text is cut.

        Only the beginning is searched, plus the length of the longest secret.
        """
        if len(text) <= limit:
            return self.redact(text)
        beyond = 2 * max(matcher.longest for matcher in self._matchers) + _LONGEST_LOGIN
        window = text[: limit + beyond]
        redacted = self.redact(window)
        if len(window) < len(text):
            redacted = redacted[:-beyond]  # a secret that begins here may end behind the window
        return f"{redacted[:limit]}…" if len(redacted) >= limit or len(window) < len(text) else redacted

    def message(self, text: str) -> str:
        """Return a redacted error message, cut to `LONGEST_MESSAGE`."""
        return self.excerpt(text, LONGEST_MESSAGE)

    def texts(self, value: Any) -> Any:
        """Return a JSON value with known secrets masked; names of members do not matter."""
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
        marked = {**dict.fromkeys(_ARGUMENT_KEYS, arguments), **dict.fromkeys(_RESULT_KEYS, results)}

        def redact(facts: Mapping[str, Any]) -> dict[str, Any]:
            return {key: self._fact(fact, marked.get(key, _NOTHING)) for key, fact in facts.items()}

        return redact

    def plain(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Redact the facts of an event of no known tool; the keys of facts are ours and name no secrets."""
        return {key: self._fact(fact, _NOTHING) for key, fact in facts.items()}

    def _fact(self, fact: Any, secret: SecretPaths) -> Any:
        if not secret and self._is_empty and _is_harmless(fact):
            return fact
        if () in secret:  # the whole value is a secret
            return MASK
        return self.value(fact, secret=secret)


@runtime_checkable
class RedactingTool(Protocol):
    """A tool with secrets of its own, such as the credential of a server behind it."""

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


def _is_harmless(fact: Any) -> bool:
    """Return whether a fact is plain values under harmless names without a URL; most are, and need no redaction."""
    if fact.__class__ in _PLAIN:
        return not may_hold_url(fact)
    return (
        fact.__class__ is dict
        and _PLAIN.issuperset(map(type, fact.values()))
        and _NAMES.issuperset(map(type, fact))
        and not any(map(is_secret_name, fact))
        and not any(map(may_hold_url, fact.values()))
    )


def mask_url_secrets(text: str) -> str:
    """Mask the password before a URL's host, and keys and signatures in its query."""
    if _MARK not in text:
        return text
    text = _LOGIN.sub(rf"\g<1>{MASK}@", text)
    return _FIELD.sub(_mask_field, text) if "=" in text else text


def may_hold_url(value: object) -> bool:
    """Return whether a value is text with a URL in it."""
    return isinstance(value, str) and _MARK in value


def _mask_field(found: re.Match[str]) -> str:
    name = unquote_plus(found[2])
    secret = name.lower() in _KEYS or is_secret_name(name)
    return f"{found[1]}{found[2]}={MASK}" if secret else found[0]


class LogRedaction(logging.Filter):
    """Logging filter that redacts the message and traceback of each record and keeps the message on one line."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = one_line(self._redactor.message(record.getMessage())), ()
        if record.exc_info:
            # Handlers print `exc_text` where it is set; the exception itself would be printed unredacted.
            record.exc_text = self._redactor.redact(_formatter.formatException(record.exc_info))
            record.exc_info = None
        elif record.exc_text:
            record.exc_text = self._redactor.redact(record.exc_text)
        return True


@contextmanager
def redacted_logs(redactor: Redactor) -> Generator[None]:
    """Redact the package's log records while the context is open; several redactors can be active at once."""
    redaction = LogRedaction(redactor)
    for name in LOGGERS:
        logging.getLogger(name).addFilter(redaction)
    try:
        yield
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(redaction)


def one_line(text: str) -> str:
    """Escape line breaks and other control characters, so that a text cannot pass for two log records."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
