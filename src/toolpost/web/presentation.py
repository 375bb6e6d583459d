"""What is presented with one request to say who we are; it joins the request only when that is sent."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from toolpost.web.encoding import Pair


class Presentation(NamedTuple):
    """Secrets by place, not yet encoded; `tokens` are those that can be had anew when they are refused."""

    headers: tuple[Pair, ...] = ()
    query: tuple[Pair, ...] = ()
    cookies: tuple[Pair, ...] = ()
    tokens: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Presentation({len(self.secrets)} secrets)"

    def joined(self, other: Presentation) -> Presentation:
        """Both together."""
        return Presentation(
            headers=self.headers + other.headers,
            query=self.query + other.query,
            cookies=self.cookies + other.cookies,
            tokens=self.tokens + other.tokens,
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Everything that must not be told, also a token without the word before it."""
        if self is NOTHING:
            return ()
        values = [value for place in (self.headers, self.query, self.cookies) for _, value in place]
        inner = [_inside(value) for value in values if " " in value]
        return tuple(dict.fromkeys([*values, *(secret for pair in inner for secret in pair)]))


def _inside(header: str) -> tuple[str, ...]:
    """What follows the word of a scheme; of `Basic` the password too, in clear."""
    word, _, value = header.partition(" ")
    if word.lower() != "basic":
        return (value,)
    try:
        return value, base64.b64decode(value).decode().partition(":")[2]
    except ValueError:
        return (value,)


NOTHING = Presentation()
