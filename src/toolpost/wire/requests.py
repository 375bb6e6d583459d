"""A request as a caller writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

    from toolpost.wire.headers import HeaderInput

    Content: TypeAlias = bytes | AsyncIterable[bytes] | None

Follow = Literal["safe", "all", "none"]


class Request(NamedTuple):
    """One request; what is None is the client's own default.

    `follow` says which redirects are followed: those of GET and HEAD, those of every method, or none. `max_bytes`
    limits the body that comes back, after decompression; `timeout_s` is for everything, redirects and body included.
    """

    method: str
    url: str
    headers: HeaderInput = ()
    body: Content = None
    timeout_s: float | None = None
    max_bytes: int | None = None
    follow: Follow = "safe"

    def __repr__(self) -> str:
        return f"Request({self.method!r})"  # a path or a query may hold a key
