"""Rows that cannot be read any more: each is told of once, and all others go on."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from toolpost.contracts.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

UNREADABLE = "row_unreadable"
FAULTS = (StoreError, ValueError, TypeError, KeyError)
Row = TypeVar("Row")
Read = TypeVar("Read")

_log = logging.getLogger("toolpost.stores")


def readable(rows: Iterable[Row], read: Callable[[Row], Read], name: Callable[[Row], str]) -> list[Read]:
    """What can be read of some rows; the others are passed over."""
    found: list[Read] = []
    for row in rows:
        try:
            found.append(read(row))
        except FAULTS as error:
            pass_over(name(row), error)
    return found


def pass_over(name: str, error: Exception) -> None:
    """Tell of a row that is damaged; a fault that is not the row's own is raised, because it may end by itself."""
    if isinstance(error, StoreError) and error.error_code != UNREADABLE:
        raise error
    _tell(name, str(error) if isinstance(error, StoreError) else type(error).__name__)


@lru_cache(maxsize=1000)
def _tell(name: str, said: str) -> None:
    """Once for each, because rows are looked at every few seconds; what they hold is not told."""
    _log.warning("%s is damaged and passed over: %s", name, said)
