"""Redaction: known secrets however written, secret-like names and what a schema marks, before anything is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from toolpost.contracts.events import JsonText
from toolpost.policy.lookout import Lookout
from toolpost.policy.url_secrets import may_hold_url, without_url_secrets
from toolpost.schema.secrets import is_secret_name, is_secret_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from toolpost.schema.secrets import SecretPaths

MASK = "[redacted]"
LONGEST_MESSAGE = 8000  # of what an error says; the other side decides how long that is
_DEEPEST = 100  # what lies deeper is masked unseen, because looking would overflow the stack
_LARGEST_NUMBER = 10**100
_LONGEST_LOGIN = 256  # of a name and a password in a URL
_ARGUMENT_KEYS = ("params", "input", "arguments")
_RESULT_KEYS = ("summary", "result")
_SCALARS = frozenset({str, int, float, bool})
_TELLING = frozenset({str, int, float})
_PLAIN = frozenset({*_SCALARS, type(None)})
_NAMES = frozenset({str})
_NOTHING: SecretPaths = frozenset()


class Redactor:
    """Knows the secrets of one Toolbox and takes them out of whatever is to be told."""

    def __init__(self, secrets: Iterable[str] = (), *, beside: tuple[Lookout, ...] = ()) -> None:
        self._own = Lookout()
        self._lookouts = (*beside, self._own)
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Remember more secrets, in whatever form they may come back."""
        for secret in secrets:
            self._own.learn(secret)
            if "\n" in secret:  # it may be told line by line
                self._own.learn_lines(secret)

    def join(self, other: Redactor) -> None:
        """Take out what another knows as well, whenever it learned that."""
        more = [lookout for lookout in other._lookouts if lookout not in self._lookouts]
        self._lookouts = (*more, *self._lookouts)

    @property
    def _knows_nothing(self) -> bool:
        return self._own.knows_nothing and len(self._lookouts) == 1

    def knowing(self, secrets: Iterable[str]) -> Redactor:
        """A redactor that knows more secrets, such as those in the arguments of one call."""
        other = Redactor(secrets, beside=self._lookouts)
        return self if other._own.knows_nothing else other

    def text(self, text: str) -> str:
        """A text without the known secrets."""
        if self._knows_nothing:
            return text
        for lookout in self._lookouts:
            text = lookout.without(text, MASK)
        return text

    def told(self, text: str) -> str:
        """A text that is told: without the known secrets, and without those that a URL gives away."""
        return without_url_secrets(self.text(text), MASK)

    def excerpt(self, text: str, limit: int) -> str:
        """The beginning of a text that is told, with no part of a secret where it is cut.

        However long the text is, only its beginning is looked at, and so much more that a secret ends in it.
        """
        if len(text) <= limit:
            return self.told(text)
        beyond = 2 * max(lookout.longest for lookout in self._lookouts) + _LONGEST_LOGIN
        window = text[: limit + beyond]
        told = self.told(window)
        if len(window) < len(text):
            told = told[:-beyond]  # a secret that begins here may go on where nobody looked
        return f"{told[:limit]}…" if len(told) >= limit or len(window) < len(text) else told

    def message(self, text: str) -> str:
        """What an error says, of a length that can be told."""
        return self.excerpt(text, LONGEST_MESSAGE)

    def texts(self, value: Any) -> Any:
        """A JSON value without known secrets, whatever its members are called."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.texts(part) for key, part in cast("Mapping[object, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [self.texts(part) for part in cast("Sequence[Any]", value)]
        return value

    def value(self, value: Any, *, secret: SecretPaths = _NOTHING, path: tuple[str, ...] = ()) -> Any:
        """A JSON value without known secrets, secret-like names and marked paths; what is not JSON becomes text."""
        if type(value) is str:
            return self.told(value)
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
                return self.told(str(value))

    def _number(self, value: float) -> Any:
        """A number that is no secret; a passcode may come as one."""
        if self._knows_nothing or not -_LARGEST_NUMBER < value < _LARGEST_NUMBER:
            return value
        return MASK if any(str(value) in lookout.numbers for lookout in self._lookouts) else value

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
        """The redaction of one tool's events, by where its schemas mark secrets."""
        marked = {**dict.fromkeys(_ARGUMENT_KEYS, arguments), **dict.fromkeys(_RESULT_KEYS, results)}

        def redact(facts: Mapping[str, Any]) -> dict[str, Any]:
            return {key: self._fact(fact, marked.get(key, _NOTHING)) for key, fact in facts.items()}

        return redact

    def plain(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The redaction of events that belong to no known tool; the keys of facts are ours and name no secrets."""
        return {key: self._fact(fact, _NOTHING) for key, fact in facts.items()}

    def _fact(self, fact: Any, secret: SecretPaths) -> Any:
        if not secret and self._knows_nothing and _is_harmless(fact):
            return fact
        if () in secret:  # the whole of it is one
            return MASK
        return self.value(fact, secret=secret)


@runtime_checkable
class RedactingTool(Protocol):
    """A tool that has secrets of its own, such as the credential of a server behind it, and knows them."""

    @property
    def redactor(self) -> Redactor:
        """What knows them."""
        ...


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
        return not may_hold_url(fact)
    return (
        fact.__class__ is dict
        and _PLAIN.issuperset(map(type, fact.values()))
        and _NAMES.issuperset(map(type, fact))
        and not any(map(is_secret_name, fact))
        and not any(map(may_hold_url, fact.values()))
    )
