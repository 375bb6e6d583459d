"""Sources that were added and removed while a gateway runs, for workers that start later."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FROM_SIBLING = "toolpost.sibling"  # in the scope of a request: whether another worker sent it
SOURCE_CHANGES = "/workers/source-changes"


@dataclass(slots=True)
class ChangedSources:
    """The last change of each source since the gateway started, and the number of all changes.

    If two workers differ, the one with the higher `count` is right.
    """

    changes: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    count: int = 0

    def add(self, name: str, body: dict[str, Any]) -> None:
        """Record that a source was added; this replaces the record of its removal."""
        self.changes[name] = {"add": body}
        self.count += 1

    def remove(self, name: str, *, is_configured: bool) -> None:
        """Record that a source was removed; a source that is not in the configuration needs no record."""
        self.changes.pop(name, None)
        if is_configured:
            self.changes[name] = {"remove": name}
        self.count += 1
