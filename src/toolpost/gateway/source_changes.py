"""Sources that were added and removed while a gateway runs, which each of its workers has to know of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

FROM_SIBLING = "toolpost.sibling"  # in the scope of a request: whether another worker sent it
SOURCE_CHANGES = "/workers/source-changes"


class ChangedSources:
    """Sources that were changed since the gateway runs, for a worker that is started later: of each the last change.

    `count` is that of all changes: whoever has seen more of them knows better.
    """

    def __init__(self, changes: Mapping[str, dict[str, Any]] | None = None, count: int = 0) -> None:
        self.changes = dict(changes or {})
        self.count = count

    def add(self, name: str, body: dict[str, Any]) -> None:
        """Note that a source was added, in place of one that was removed before, if there was one."""
        self.changes[name] = {"add": body}
        self.count += 1

    def remove(self, name: str, *, is_configured: bool) -> None:
        """Note that a source was removed; of one that is not in the configuration nothing is left to know."""
        self.changes.pop(name, None)
        if is_configured:
            self.changes[name] = {"remove": name}
        self.count += 1

    def to_dict(self) -> dict[str, Any]:
        """Return them as JSON data, by which another worker makes its own."""
        return {"changes": self.changes, "count": self.count}
