"""A list that is always as of now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class Live(Sequence[T], Generic[T]):
    """Reads like a list, and is made anew whenever it is read."""

    __slots__ = ("_make",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, make: Callable[[], list[T]]) -> None:
        self._make = make

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self._make()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._make())  # one making for the whole list, not one for each item

    def __len__(self) -> int:
        return len(self._make())

    def __eq__(self, other: object) -> bool:
        return self._make() == (other._make() if isinstance(other, Live) else other)

    def __repr__(self) -> str:
        return repr(self._make())
