"""Secrets that the redactor removes after some time, such as access tokens and authorization codes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

AN_HOUR_S = 3600.0
_MAX_S = 86_400.0


class ExpiringSecret(str):
    """The text of a secret that is redacted for `for_s` seconds."""

    __slots__ = ("for_s",)
    for_s: float

    def __new__(cls, text: str, for_s: float) -> Self:
        made = super().__new__(cls, text)
        made.for_s = for_s
        return made


def expiring(secrets: Iterable[str], *, until: float | None = None, now: float = 0.0) -> set[str]:
    """Return expiring secrets, redacted until an hour after `until`, at most for a day, or a day if it is None."""
    for_s = _MAX_S if until is None else min(max(0.0, until - now) + AN_HOUR_S, _MAX_S)
    return {ExpiringSecret(secret, for_s) for secret in secrets}
