"""A request as a tool plans it, before anything is sent; the credential stays apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from toolpost.web.encoding import cookie_name, cookie_value, percent
from toolpost.web.presentation import NOTHING, Presentation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolpost.web.encoding import Pair


READS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "QUERY"})
"""The methods that change nothing (RFC 9110 section 9.2.1, and QUERY)."""


class PlannedRequest(NamedTuple):
    """A request; the credential stays apart in `presented` and shows only in what is called `wire`.

    Names and values are encoded as they are sent; header values travel as UTF-8.
    """

    method: str
    address: str
    query: tuple[Pair, ...] = ()
    headers: tuple[Pair, ...] = ()
    cookies: tuple[Pair, ...] = ()
    body: bytes | None = None
    presented: Presentation = NOTHING

    def __repr__(self) -> str:
        return f"PlannedRequest({self.method!r}, {self.address!r})"

    @property
    def url(self) -> str:
        """Where it goes, without secrets: the URL to tell of."""
        return _with_query(self.address, self.query)

    @property
    def wire_url(self) -> str:
        """Where it goes, with everything: only for whoever sends it."""
        if not self.presented.query:
            return self.url
        secret = [(percent(name), percent(value)) for name, value in self.presented.query]
        return _with_query(self.address, _overlaid(self.query, secret))

    @property
    def wire_headers(self) -> tuple[Pair, ...]:
        """The headers with everything: only for whoever sends it."""
        if self.presented is NOTHING and not self.cookies:
            return self.headers
        baked = [(cookie_name(name), cookie_value(value)) for name, value in self.presented.cookies]
        cookies = _overlaid(self.cookies, baked)
        # RFC 6265 section 5.4: a request has at most one Cookie header.
        jar = [("Cookie", "; ".join(f"{name}={value}" for name, value in cookies))] if cookies else []
        return (*_overlaid(self.headers, self.presented.headers, key=str.lower), *jar)

    def with_headers(self, headers: Sequence[Pair]) -> PlannedRequest:
        """The same request with headers of the operator's, which take the place of arguments of their names."""
        return self._replace(headers=tuple(_overlaid(self.headers, headers, key=str.lower))) if headers else self

    def presenting(self, presented: Presentation) -> PlannedRequest:
        """The same request with a credential, which takes the place of any argument of its name."""
        return self if presented is self.presented else self._replace(presented=presented)


def _overlaid(pairs: Sequence[Pair], over: Sequence[Pair], *, key: Callable[[str], str] = str) -> list[Pair]:
    if not over:
        return [*pairs]
    names = {key(name) for name, _ in over}
    return [*(pair for pair in pairs if key(pair[0]) not in names), *over]


def _with_query(address: str, pairs: Sequence[Pair]) -> str:
    return f"{address}?{'&'.join(f'{name}={value}' for name, value in pairs)}" if pairs else address
