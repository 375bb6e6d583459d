"""What an engine is: something that a schema has been compiled into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from toolpost.schema.faults import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A compiled schema: the verdict, all faults, or only the first one.

    Each may raise ValueError for a value that is not JSON or nested too deeply.
    """

    is_valid: Callable[[Any], bool]
    faults: Callable[[Any], Iterable[Fault]]
    first_fault: Callable[[Any], Iterable[Fault]]
