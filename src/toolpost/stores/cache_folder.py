"""A folder of files that can be made anew: cached listings and documents, each sealed to its name."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import Sealer


class CacheFolder:
    """Whatever is wrong with a file, it counts as not there; what cannot be written is not kept.

    Older versions kept text as it is: such a file is read, and sealed when it is next written.
    """

    def __init__(self, folder: Path, sealer: Sealer) -> None:
        self._folder = folder
        self._sealer = sealer

    def read(self, name: str) -> bytes | None:
        """What was kept under a name."""
        try:
            data = (self._folder / name).read_bytes()
            return data if data[:1] >= b" " else self._sealer.open(data, row=self._row(name))
        except (OSError, StoreError):
            return None

    def write(self, name: str, data: bytes) -> None:
        """Keep a file whole or not at all, for its owner only."""
        # A full or read-only disk costs the next start some time, and nothing else.
        with suppress(OSError, StoreError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(self._sealer.seal(data, row=self._row(name)))
                Path(temporary).replace(self._folder / name)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise

    def remove(self, name: str) -> None:
        """Let a file go."""
        with suppress(OSError):
            (self._folder / name).unlink(missing_ok=True)

    def _row(self, name: str) -> str:
        return f"cache|{self._folder.name}|{name}"
