"""Pages of a list in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from toolpost.contracts.questions import PendingAction
from toolpost.contracts.storage import ArtifactRef

Listed = TypeVar("Listed", PendingAction, ArtifactRef)


def behind(items: Sequence[Listed], before: str | None) -> Sequence[Listed]:
    """Return the items behind the one with this id, none where it is not among them; for no id all."""
    if before is None:
        return items
    return items[next((at for at, item in enumerate(items, 1) if item.id == before), len(items)) :]
