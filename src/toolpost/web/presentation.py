"""What is presented with one request to say who we are; it joins the request only when that is sent."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from toolpost.contracts.calls import Credential
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


def present_headers(credential: Credential) -> Presentation:
    """Present the headers of a credential as they are; its cookies join those of the request."""
    if not credential.headers:
        return NOTHING
    cookies = [value.partition("=") for name, value in credential.headers.items() if name.lower() == "cookie"]
    return Presentation(
        headers=tuple((name, value) for name, value in credential.headers.items() if name.lower() != "cookie"),
        cookies=tuple((name, value) for name, _, value in cookies),
    )
