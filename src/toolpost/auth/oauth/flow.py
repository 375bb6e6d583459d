"""A flow: a generator that yields what to ask and is sent what was answered, so that one is tested without sockets.

A request that fails on its way is thrown into the flow as the error that the wire tells it with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

from toolpost.schema.jsontypes import is_object

if TYPE_CHECKING:
    from toolpost.wire.requests import Headers, Pairs

ACCEPT_JSON: Pairs = (("Accept", "application/json"),)

T = TypeVar("T")
Clock: TypeAlias = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request; `form` or `json` is its body.

    `documents` are the URLs of the documents that led here, the first one first. Whoever wrote them may point at
    less than an operator may.
    """

    method: Literal["GET", "POST"]
    url: str = field(repr=False)
    headers: Pairs = field(default=ACCEPT_JSON, repr=False)
    form: Pairs | None = field(default=None, repr=False)
    json: Any = field(default=None, repr=False)
    documents: tuple[str, ...] = ()


class Reply(NamedTuple):
    """What came back, whatever its status."""

    status: int
    headers: Headers
    body: bytes

    def __repr__(self) -> str:
        return f"Reply({self.status})"


Flow: TypeAlias = Generator[Ask, Reply, T]


def json_object(reply: Reply) -> dict[str, Any] | None:
    """The JSON object that an answer holds, whatever type it says it has; None for anything else."""
    try:
        told: object = json.loads(reply.body)
    except (ValueError, RecursionError):
        return None
    return told if is_object(told) else None
