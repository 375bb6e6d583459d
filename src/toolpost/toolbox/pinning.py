"""Compares the tools of a source with the lock file, and holds back those that nobody has agreed to."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from toolpost.auth.static import secrets_of
from toolpost.catalog.lock import Hold, pin_of
from toolpost.contracts.errors import ConfigError
from toolpost.policy.redaction import MASK, mask_url_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from toolpost.catalog.lock import Lock, Pin
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.tool import Tool

_SHORTEST_SECRET = 4


class Pinning:
    """The pins of one source: what its tools are now, and which of them differ from the lock file."""

    def __init__(self, lock: Lock, config: ExternalToolConfig, secrets: Iterable[str]) -> None:
        self._lock = lock
        self._source = config.name
        self._mask = _mask(config, secrets, str(lock.path.parent))
        self._pins: dict[str, tuple[Tool, Pin]] = {}

    def pin(self, tool: Tool) -> Pin:
        """A tool's definition as it is now."""
        known = self._pins.get(tool.spec.name)
        if known is None or known[0] is not tool:
            known = self._pins[tool.spec.name] = (tool, pin_of(tool.spec, self._mask))
        return known[1]

    def hold(self, tool: Tool, release: Callable[[], None]) -> Hold | None:
        """Why a tool is set aside, or None; `release` registers it as any other."""
        pinned = self._lock.sources.get(self._source)
        if pinned is None:
            return None
        name, now = bare_name(tool), self.pin(tool)
        before = pinned.get(name)
        if before is not None and before.hash == now.hash:
            return None

        def accept() -> None:
            self._lock.pin(self._source, name, now)
            release()

        def is_settled() -> bool:
            try:
                kept = self._lock.sources.get(self._source, {}).get(name)
            except ConfigError:  # told where the tool is asked about; what nobody can read agrees to nothing
                return False
            if kept is None or kept.hash != now.hash:
                return False
            release()
            return True

        return Hold(name=tool.spec.name, before=before, after=now, accept=accept, is_settled=is_settled)


def bare_name(tool: Tool) -> str:
    """The name of a tool within its source."""
    return tool.spec.name.partition(".")[2]


def _mask(config: ExternalToolConfig, secrets: Iterable[str], folder: str) -> Callable[[str], str]:
    """Take out the source's own secrets, and the folder of the lock file: both differ between machines.

    Only those that stand in this source's configuration count, so that another source does not change its pins.
    """
    written = json.dumps(config.model_dump(mode="json"), ensure_ascii=False)
    own = {secret for secret in secrets if secret in written} | secrets_of(config)
    longest_first = sorted((secret for secret in own if len(secret) >= _SHORTEST_SECRET), key=len, reverse=True)

    def mask(text: str) -> str:
        for secret in longest_first:
            text = text.replace(secret, MASK)
        return mask_url_secrets(text.replace(folder, ".") if folder != os.sep else text)

    return mask
