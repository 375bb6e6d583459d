"""Secrets that pass: whoever watches for them may forget them after a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

AN_HOUR_S = 3600.0
LONGEST_S = 86_400.0


class PassingSecret(str):
    """The text of a secret, with how long it is still worth watching for; to all others it is a text like any."""

    __slots__ = ("for_s",)
    for_s: float

    def __new__(cls, text: str, for_s: float) -> Self:
        made = super().__new__(cls, text)
        made.for_s = for_s
        return made


def passing(secrets: Iterable[str], *, until: float | None = None, now: float = 0.0) -> set[str]:
    """Secrets that end at `until`, and are known an hour longer; a day where nobody knows when they do, at most."""
    for_s = LONGEST_S if until is None else min(max(0.0, until - now) + AN_HOUR_S, LONGEST_S)
    return {PassingSecret(secret, for_s) for secret in secrets}
