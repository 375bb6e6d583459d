"""Which names and which parts of a schema hold secrets, so that their values are never told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolpost.schema.subschemas import Document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from toolpost.contracts.spec import JsonSchema
    from toolpost.schema.jsontypes import AnySchema
    from toolpost.schema.subschemas import Subschema

SecretPaths = frozenset[tuple[str, ...]]

ANY = "*"
_MAX_PATH = 12
_MAX_VISITS = 20_000

# A name is secret by its last words: `github_token` is, `token_count` is not.
_LAST_WORDS = frozenset(
    {
        "password",
        "passwords",
        "passwd",
        "pwd",
        "passphrase",
        "passcode",
        "secret",
        "secrets",
        "token",
        "credential",
        "credentials",
        "authorization",
        "cookie",
        "cookies",
        "bearer",
        "jwt",
        "otp",
        "cvv",
        "apikey",
        "apikeys",
    }
)
_LAST_PAIRS = frozenset(
    {
        *(
            (kind, "key")
            for kind in ("api", "access", "account", "private", "secret", "signing", "encryption", "master", "session")
        ),
        *((kind, "keys") for kind in ("api", "access", "private", "secret", "signing", "encryption")),
        ("session", "id"),
        ("password", "hash"),
    }
)
# Headers that say how to talk, not who talks.
_TELLING_HEADERS = frozenset(
    {
        *("accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "connection"),
        *("content-encoding", "content-language", "content-length", "content-type", "date", "expect", "host"),
        *("if-match", "if-modified-since", "if-none-match", "keep-alive", "origin", "pragma", "prefer", "range"),
        *("referer", "te", "upgrade", "user-agent", "via", "x-client-name", "x-requested-with"),
    }
)
# A word, a number, a date, a media type: to hide these would hide ordinary text.
_TELLING_VALUE = re.compile(r"[A-Za-z]{0,7}|[\d.:-]{0,10}|[a-z]+/[\w.+*-]+")
# Words that may follow a secret name without making it harmless: `password_confirm`, `private_key_pem`.
_NEUTRAL_TAILS = frozenset(
    {
        "value",
        "text",
        "plain",
        "raw",
        "pem",
        "string",
        "str",
        "header",
        "data",
        "confirm",
        "confirmation",
        "new",
        "old",
    }
)
_RUN_TOGETHER = re.compile(
    r"(password|passwd|passphrase|secretkey|clientsecret|privatekey|accesskey|apikey|sessionid"
    r"|(access|auth|refresh|session|bearer|api|id)token)$"
)
# Words before `token` that make it a page to turn or a piece of text.
_HARMLESS_TOKENS = frozenset(
    {
        "page",
        "next",
        "previous",
        "prev",
        "continuation",
        "sync",
        "cursor",
        "pagination",
        "change",
        "max",
        "min",
        "stop",
        "eos",
        "bos",
        "pad",
        "unk",
        "per",
    }
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a field of this name is likely to hold a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    while len(words) > 1 and words[-1] in _NEUTRAL_TAILS:
        words.pop()
    if not words:
        return False
    pair = tuple(words[-2:])
    if words[-1] == "token":
        return len(words) == 1 or words[-2] not in _HARMLESS_TOKENS
    return words[-1] in _LAST_WORDS or pair in _LAST_PAIRS or _RUN_TOGETHER.search(words[-1]) is not None


def secret_paths(schema: AnySchema) -> SecretPaths:
    """Where secrets lie in a value of this schema; `*` stands for any item or any other property.

    Recursive schemas are followed a few levels deep, which `is_secret_path` makes up for by name.
    """
    if isinstance(schema, bool):
        return frozenset()
    document = Document(schema)
    found: set[tuple[str, ...]] = set()
    visited: set[tuple[int, tuple[str, ...]]] = set()
    stack = [_Visit((), schema)]
    while stack and len(visited) < _MAX_VISITS:
        visit = stack.pop()
        key = (id(visit.schema), visit.path)
        if key in visited:
            continue
        visited.add(key)
        if _is_marked(visit):
            found.add(visit.path)
        elif len(visit.path) < _MAX_PATH:
            stack.extend(_inside(document, visit))
    return frozenset(found)


def is_secret_header(name: str, value: str) -> bool:
    """Whether the value of a header in a configuration is one: all are, but for what a well-known name says."""
    known = name.lower()
    if is_secret_name(name):
        return True
    return known not in _TELLING_HEADERS and not known.endswith("-version") and not _TELLING_VALUE.fullmatch(value)


def is_secret_path(path: Sequence[str | int], secrets: SecretPaths) -> bool:
    """Whether the value at `path` is a secret or a part of one."""
    if any(isinstance(part, str) and is_secret_name(part) for part in path):
        return True
    return any(_covers(secret, path) for secret in secrets)


def _covers(secret: tuple[str, ...], path: Sequence[str | int]) -> bool:
    return len(secret) <= len(path) and all(part in (ANY, there) for part, there in zip(secret, path, strict=False))


class _Visit(NamedTuple):
    path: tuple[str, ...]
    schema: JsonSchema


def _is_marked(visit: _Visit) -> bool:
    if visit.schema.get("writeOnly") is True or visit.schema.get("format") == "password":
        return True
    return bool(visit.path) and is_secret_name(visit.path[-1])


def _inside(document: Document, visit: _Visit) -> Iterator[_Visit]:
    for inner in document.applied(visit.schema):
        step = _step(inner)
        if step is not None:
            yield _Visit(visit.path + step, inner.schema)


def _step(inner: Subschema) -> tuple[str, ...] | None:
    """What a subschema adds to the path; None when it does not describe the value's content."""
    if inner.keyword in ("not", "if", "propertyNames", "contentSchema"):
        return None
    if inner.place == "here":
        return ()
    return (str(inner.key),) if inner.keyword == "properties" else (ANY,)


def harmless(value: Any) -> Any:
    """A copy of a value without its secret-like members, however deep; what is like an object or a list becomes one."""
    if isinstance(value, Mapping):
        members = cast("Mapping[object, Any]", value).items()
        return {name: harmless(part) for name, part in members if not is_secret_name(str(name))}
    if isinstance(value, (list, tuple, AbstractSet)):
        return [harmless(part) for part in cast("list[Any]", value)]
    return value
