"""Detect secrets by the names of fields, variables and headers, and by keywords of a schema."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, cast

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import AnySchema
from toolpost.schema.subschemas import SchemaDocument, Subschema

SecretPaths = frozenset[tuple[str, ...]]

ANY = "*"
_MAX_PATH = 12
_MAX_VISITS = 20_000

# A name is secret by its last words: `github_token` is, `token_count` is not.
_LAST_WORDS = frozenset(
    {
        *("password", "passwords", "passwd", "pwd", "passphrase", "passcode", "secret", "secrets", "token"),
        *("credential", "credentials", "authorization", "cookie", "cookies", "bearer", "jwt", "otp", "cvv"),
        *("apikey", "apikeys"),
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
# Headers of the protocol, without credentials.
_HARMLESS_HEADERS = frozenset(
    {
        *("accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "connection"),
        *("content-encoding", "content-language", "content-length", "content-type", "date", "expect", "host"),
        *("if-match", "if-modified-since", "if-none-match", "keep-alive", "origin", "pragma", "prefer", "range"),
        *("referer", "te", "upgrade", "user-agent", "via", "x-client-name", "x-requested-with"),
    }
)
# A word, a number, a date or a media type: hiding these would hide ordinary text.
_HARMLESS_VALUE = re.compile(r"[A-Za-z]{0,7}|[\d.:-]{0,10}|[a-z]+/[\w.+*-]+")
# Words that may follow a secret name without making it harmless: `password_confirm`, `private_key_pem`.
_NEUTRAL_TAILS = frozenset(
    {
        *("value", "text", "plain", "raw", "pem", "string", "str", "header", "data", "confirm", "confirmation"),
        *("new", "old"),
    }
)
_RUN_TOGETHER = re.compile(
    r"(password|passwd|passphrase|secretkey|clientsecret|privatekey|accesskey|apikey|sessionid"
    r"|(access|auth|refresh|session|bearer|api|id)token)$"
)
# Words before `token` that make it a cursor or a unit of text.
_HARMLESS_TOKENS = frozenset(
    {
        *("page", "next", "previous", "prev", "continuation", "sync", "cursor", "pagination", "change", "max"),
        *("min", "stop", "eos", "bos", "pad", "unk", "per"),
    }
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Names of variables and headers are shorter than those of fields, and any key among them is likely a secret.
_VARIABLE_TAIL = re.compile(r"(?:^|[^a-z])(?:key|keys|pass|auth|pat|dsn)$", re.IGNORECASE)


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Return whether a field of this name is likely to contain a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    while len(words) > 1 and words[-1] in _NEUTRAL_TAILS:
        words.pop()
    if not words:
        return False
    pair = tuple(words[-2:])
    if words[-1] == "token":
        return len(words) == 1 or words[-2] not in _HARMLESS_TOKENS
    return words[-1] in _LAST_WORDS or pair in _LAST_PAIRS or _RUN_TOGETHER.search(words[-1]) is not None


def is_secret_variable(name: str) -> bool:
    """Return whether a variable, a header or an option of this name is likely to contain a secret."""
    return is_secret_name(name) or _VARIABLE_TAIL.search(name) is not None


def secret_paths(schema: AnySchema) -> SecretPaths:
    """Return the paths of secrets in values of this schema; `*` is any item or any other property.

    Recursive schemas are followed a few levels deep; `is_secret_path` detects deeper secrets by name.
    """
    if isinstance(schema, bool):
        return frozenset()
    document = SchemaDocument(schema)
    leading = _schemas_with_secrets(document)
    paths: set[tuple[str, ...]] = set()
    seen: set[tuple[int, tuple[str, ...]]] = set()
    waiting = deque([_Visit((), schema)] if leading else ())
    while waiting:
        visit = waiting.popleft()  # breadth first
        if _is_marked(visit):
            paths.add(visit.path)
        elif len(visit.path) < _MAX_PATH and len(seen) < _MAX_VISITS:
            for inside in islice(_inside(document, visit, leading), _MAX_VISITS - len(seen)):
                key = (id(inside.schema), inside.path)
                if key not in seen:
                    seen.add(key)
                    waiting.append(inside)
    return frozenset(paths)


def _schemas_with_secrets(document: SchemaDocument) -> set[int]:
    """Return the ids of schemas with a secret at any depth; each schema is visited once."""
    above: defaultdict[int, list[int]] = defaultdict(list)
    marked: list[int] = []
    schema_ids = {id(document.root)}
    stack = [document.root]
    while stack:
        schema = stack.pop()
        if _is_marked(_Visit((), schema)):
            marked.append(id(schema))
        for inner in document.applied(schema):
            step = _step(inner)
            if step is None:
                continue
            above[id(inner.schema)].append(id(schema))
            if step and is_secret_name(step[-1]):
                marked.append(id(inner.schema))
            if id(inner.schema) not in schema_ids:
                schema_ids.add(id(inner.schema))
                stack.append(inner.schema)
    leading = set(marked)
    while marked:
        fresh = {one for one in above.pop(marked.pop(), ()) if one not in leading}
        leading |= fresh
        marked.extend(fresh)
    return leading


def is_secret_header(name: str, value: str) -> bool:
    """Return whether the value of a configured header is a secret: all are, except for well-known harmless ones."""
    lower_name = name.lower()
    if is_secret_name(name):
        return True
    return (
        lower_name not in _HARMLESS_HEADERS
        and not lower_name.endswith("-version")
        and not _HARMLESS_VALUE.fullmatch(value)
    )


def is_secret_path(path: Sequence[str | int], secrets: SecretPaths) -> bool:
    """Return whether the value at `path` is a secret or a part of one."""
    if any(isinstance(part, str) and is_secret_name(part) for part in path):
        return True
    return any(
        len(secret) <= len(path) and all(part in (ANY, there) for part, there in zip(secret, path, strict=False))
        for secret in secrets
    )


class _Visit(NamedTuple):
    path: tuple[str, ...]
    schema: JsonSchema


def _is_marked(visit: _Visit) -> bool:
    if visit.schema.get("writeOnly") is True or visit.schema.get("format") == "password":
        return True
    return bool(visit.path) and is_secret_name(visit.path[-1])


def _inside(document: SchemaDocument, visit: _Visit, leading: set[int]) -> Iterator[_Visit]:
    for inner in document.applied(visit.schema):
        step = _step(inner)
        if step is not None and id(inner.schema) in leading:
            yield _Visit(visit.path + step, inner.schema)


def _step(inner: Subschema) -> tuple[str, ...] | None:
    """Return the steps that a subschema adds to the path; None if it does not describe the value's content."""
    if inner.keyword in ("not", "if", "propertyNames", "contentSchema"):
        return None
    if inner.place == "here":
        return ()
    return (str(inner.key),) if inner.keyword == "properties" else (ANY,)


def drop_secrets(value: Any) -> Any:
    """Copy a value without members whose names are secret, at any depth; mappings become dicts, sequences lists."""
    if isinstance(value, Mapping):
        members = cast("Mapping[object, Any]", value).items()
        return {name: drop_secrets(part) for name, part in members if not is_secret_name(str(name))}
    if isinstance(value, (list, tuple, AbstractSet)):
        return [drop_secrets(part) for part in cast("list[Any]", value)]
    return value
