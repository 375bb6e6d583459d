"""Header fields: those that may be sent, and those that came back."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ToolValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Pairs = tuple[tuple[str, str], ...]
    HeaderInput = Mapping[str, str] | Pairs

# RFC 9110 §7.6.1: these speak about one connection; the others here are the connection's own business too,
# and whoever could set them could make one request look like two, or be meant for another host.
MANAGED_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A tab is the only control character that a value may have; a lone surrogate cannot be encoded.
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


class Headers:
    """The fields of an answer, in order and with their repetitions; names are found in any case."""

    __slots__ = ("_first", "pairs")

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self._first = {name.lower(): value for name, value in reversed(pairs)}

    def get(self, name: str) -> str | None:
        """The first value of a field."""
        return self._first.get(name.lower())

    def get_all(self, name: str) -> tuple[str, ...]:
        """Every value of a field, in order."""
        wanted = name.lower()
        return tuple(value for written, value in self.pairs if written.lower() == wanted)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        return f"Headers({[name for name, _ in self.pairs]})"  # values may be cookies and tokens


def clean_headers(headers: HeaderInput, *, defaults: Pairs = ()) -> Pairs:
    """The fields as they may be sent, and those of the defaults that they leave out.

    A ToolValidationError names those that may not be sent.
    """
    pairs: list[tuple[str, str]] = []
    issues: list[str] = []
    given: set[str] = set()
    for name, value in headers if isinstance(headers, tuple) else headers.items():
        lowered, issue = _read_name(name)
        if issue is None and _UNSENDABLE.search(value):
            issue = f"header {name!r} has a line break or another control character in its value"
        if issue is not None:
            issues.append(issue)
        given.add(lowered)
        pairs.append((name, value.strip(" \t")))
    if issues:
        raise ToolValidationError(issues)
    for pair in defaults:
        if _read_name(pair[0])[0] not in given:
            pairs.append(pair)  # noqa: PERF401 - on the way of every request
    return tuple(pairs)


def check_method(method: str) -> str:
    """The method as it is sent."""
    if method in _METHODS:
        return method
    if not _TOKEN.fullmatch(method) or method.upper() == "CONNECT":  # a tunnel is no request
        raise ToolValidationError(f"{method[:40]!r} is not a method that can be sent")
    return method.upper()


@lru_cache(maxsize=1024)
def _read_name(name: str) -> tuple[str, str | None]:
    """A name in lower case, and what is wrong with it."""
    lowered = name.lower()
    if not _TOKEN.fullmatch(name):
        return lowered, f"{name[:80]!r} is not the name of a header"
    if lowered in MANAGED_HEADERS:
        return lowered, f"header {name!r} belongs to the connection and cannot be set"
    return lowered, None
