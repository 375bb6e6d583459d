"""A figure: what was measured, row by row, and the targets it is held to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Row = dict[str, Any]


class Column(NamedTuple):
    """A value of each row: its key in JSON, its title for people, and how many digits they see."""

    key: str
    title: str
    digits: int = 1


class Target(NamedTuple):
    """A number and the limit it should keep."""

    name: str
    value: float
    sense: Literal["at most", "at least"]
    limit: float
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the limit is kept."""
        return self.value <= self.limit if self.sense == "at most" else self.value >= self.limit

    def to_dict(self) -> dict[str, Any]:
        """The target as plain data."""
        return {**self._asdict(), "met": self.met}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One table with its targets."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: list[Row]
    targets: list[Target]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The figure as plain data."""
        return {
            "key": self.key,
            "title": self.title,
            "rows": self.rows,
            "targets": [target.to_dict() for target in self.targets],
            "notes": list(self.notes),
        }
