"""The comparison of the lock file with the tools that the sources of a Toolbox list now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from toolpost.catalog.lock import Difference, Lock, Pins, compare
from toolpost.catalog.seen_definitions import SeenDefinitions
from toolpost.toolbox.wiring import seen_definitions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.configuration.settings import Settings
    from toolpost.toolbox.box import Toolbox


class LockComparison(Struct, frozen=True, kw_only=True):
    """Lock file and the current tools of each source; `failed` has the sources that cannot be listed, and why.

    `seen` are the definitions of sources that the lock file does not have, as they were first seen.
    A source is `partial` if signed-in users may see more tools; a tool missing from its list may still exist.
    """

    lock: Lock
    seen: dict[str, SeenDefinitions]
    configured: set[str]
    listed: Pins
    failed: dict[str, str]
    partial: set[str]

    def differences(self) -> list[Difference]:
        """Return the differences of the pinned sources, and the changes of others since they were first seen."""
        differences: list[Difference] = []
        for source, before in self.lock.sources.items():
            if source in self.listed:
                differences += compare(source, before, self.listed[source], whole=source not in self.partial)
            elif source not in self.configured:
                differences += [Difference(source, name, "gone", pin, None) for name, pin in sorted(before.items())]
        for source in self.unpinned:
            if source not in self.seen:
                continue
            found = compare(source, self.seen[source].pins, self.listed[source], whole=False)
            differences += [one for one in found if one.kind == "changed"]
        return differences

    @property
    def unpinned(self) -> list[str]:
        """Return the sources that the lock file lacks."""
        return [source for source in self.listed if source not in self.lock.sources]

    def everything(self) -> Pins:
        """Return the pins of all configured sources; sources that cannot be listed keep theirs."""
        pins_by_source = {name: dict(pins) for name, pins in self.lock.sources.items() if name in self.configured}
        for source, pins in self.listed.items():
            pins_by_source[source] = (
                {**pins_by_source.get(source, {}), **pins} if source in self.partial else dict(pins)
            )
        return pins_by_source

    def accept(self, chosen: Sequence[Difference]) -> bool:
        """Accept these differences, in the lock file where it has their source; return whether it was written."""
        pins = {name: dict(pins) for name, pins in self.lock.sources.items()}
        for one in chosen:
            if one.source not in pins:
                if one.after is not None:
                    self.seen[one.source].accept(one.tool, one.after)
                continue
            pins[one.source].pop(one.tool, None)
            if one.after is not None:
                pins[one.source][one.tool] = one.after
        is_written = any(one.source in pins for one in chosen)
        if is_written:
            self.lock.write({name: tools for name, tools in pins.items() if tools or name in self.configured})
        return is_written


def compare_with_lock(box: Toolbox, settings: Settings, lock: Lock) -> LockComparison:
    """Compare the tools that the sources of a Toolbox list now with a lock file."""
    states = {state.name: state for state in box.report}
    index, folder = box.sources.index, settings.data_dir
    configs = {} if folder is None else {listing.config.name: listing.config for listing in index.listings}
    return LockComparison(
        lock=lock,
        seen={name: seen_definitions(folder, config) for name, config in configs.items() if folder is not None},
        configured={source.name for source in settings.all_sources()},
        listed={name: index.pins(name) for name, state in states.items() if state.ok},
        failed={name: state.error or "it is down" for name, state in states.items() if not state.ok},
        partial={listing.config.name for listing in index.listings if not listing.sure},
    )
