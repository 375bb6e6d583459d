"""The tools that a server listed last, so that they are there before anybody has signed in."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

from toolpost.schema.jsontypes import is_array

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class ListingMemory:
    """One server's last listing, in a file if there is one; what cannot be kept or read is only forgotten."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._kept: list[Any] | None = None

    def keep(self, raw_tools: Sequence[Any]) -> None:
        """Remember a listing."""
        listed = list(raw_tools)
        if listed == self._kept:
            return
        self._kept = listed
        if self._file is None:
            return
        fresh = self._file.with_suffix(f".{os.getpid()}.new")
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(json.dumps(listed))
            fresh.replace(self._file)

    def recall(self) -> list[Any]:
        """The last listing; empty when there was none."""
        if self._kept is None and self._file is not None:
            with contextlib.suppress(OSError, ValueError):
                read: object = json.loads(self._file.read_text())
                self._kept = read if is_array(read) else None
        return self._kept or []
