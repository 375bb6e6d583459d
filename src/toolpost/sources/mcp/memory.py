"""The tools that a server listed last, so that they are there before anybody has signed in."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.stores.cache_folder import CacheFolder

_MOST_PEOPLE = 64


class Listed(NamedTuple):
    """Tools as a server lists them, and what else it has: `resources`, `prompts`."""

    tools: list[Any]
    offers: list[str]


class ListingMemory:
    """One server's last listings, in a folder if there is one; what cannot be kept or read is only forgotten.

    `target` tells servers apart that are configured under one name, one after the other.
    A server may list more for one person than for another. What it listed for either is known, so that nobody's tools
    vanish when somebody else signs in.
    """

    def __init__(self, folder: CacheFolder | None, name: str, *, target: str = "") -> None:
        self._folder = folder
        self._name = f"{name}.json"
        self._target = hashlib.sha256(target.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self._kept: dict[str, Listed] | None = None
        self._turn = threading.Lock()  # large listings are kept and recalled in threads

    def keep(self, tools: Sequence[Any], offers: Sequence[str], *, by: str = "") -> None:
        """Remember what was listed for somebody, in place of what was listed for them before."""
        with self._turn:
            kept, listed = self._read(), Listed(list(tools), list(offers))
            if kept.get(by) == listed:
                return
            kept.pop(by, None)
            kept[by] = listed
            for oldest in list(kept)[:-_MOST_PEOPLE]:
                del kept[oldest]
            self._write(kept)

    def recall(self) -> Listed:
        """All that was listed last for anybody; of two tools with one name the one listed later."""
        with self._turn:
            newest_first = list(reversed(self._read().values()))
        tools: dict[Any, Any] = {}
        for listed in newest_first:
            for tool in listed.tools:
                tools.setdefault(tool.get("name") if is_object(tool) else None, tool)
        return Listed(list(tools.values()), sorted({offer for listed in newest_first for offer in listed.offers}))

    def _read(self) -> dict[str, Listed]:
        if self._kept is None:
            self._kept = {}
            data = None if self._folder is None else self._folder.read(self._name)
            with contextlib.suppress(ValueError, RecursionError):
                self._kept = {} if data is None else _parsed(json.loads(data), self._target)
        return self._kept

    def _write(self, kept: dict[str, Listed]) -> None:
        if self._folder is not None:
            told = {by: listed._asdict() for by, listed in kept.items()}
            self._folder.write(self._name, json.dumps({"target": self._target, "listings": told}).encode())


def _parsed(told: object, target: str) -> dict[str, Listed]:
    """The listings of a file; none where they are of another server that had the same name."""
    found: dict[str, Listed] = {}
    listings = told.get("listings") if is_object(told) and told.get("target") == target else None
    for by, listed in (listings if is_object(listings) else {}).items():
        tools, offers = (listed.get("tools"), listed.get("offers")) if is_object(listed) else (None, None)
        if is_array(tools) and is_array(offers):
            found[by] = Listed(tools, [str(offer) for offer in offers])
    return found
