"""Writes down what came of calls with effects or keys, also when the caller is gone or the store is away."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import StoreError
from toolpost.runtime.revive import to_keep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.storage import Journal
    from toolpost.runtime.attempt import Attempt
    from toolpost.runtime.background import Background
    from toolpost.runtime.keys import KeyGate

_log = logging.getLogger("toolpost.runtime")
PATIENCE_S = 1.0


class Recorder:
    """Keeps results in the journal and under their keys."""

    def __init__(self, journal: Journal, keys: KeyGate, background: Background) -> None:
        self._journal = journal
        self._keys = keys
        self._background = background

    async def record(self, attempt: Attempt, outcome: Outcome) -> None:
        """Write an outcome down; it is written all the same when the caller does not stay for it."""
        await asyncio.shield(self._background.start(self._record(attempt, outcome)))

    async def _record(self, attempt: Attempt, outcome: Outcome) -> None:
        request, kept = attempt.request, to_keep(outcome)
        try:
            await self._write(attempt, outcome, kept)
        except StoreError as error:
            _log.error("the result of %s (%s) waits to be recorded: %s", request.call_id, request.tool_name, error)
            self._background.start(self._record_later(attempt, outcome, kept))

    async def _record_later(self, attempt: Attempt, outcome: Outcome, kept: Mapping[str, Any]) -> None:
        """The store may come back; a result that is known must not become a question."""
        while True:
            await asyncio.sleep(PATIENCE_S)
            try:
                if attempt.journaled and await self._journal.find(attempt.request.call_id, "") is None:
                    attempt.journaled = False  # the intent never came to the disk
                return await self._write(attempt, outcome, kept)
            except StoreError:
                continue

    async def _write(self, attempt: Attempt, outcome: Outcome, kept: Mapping[str, Any]) -> None:
        if attempt.journaled:
            await self._journal.finish(attempt.request.call_id, "", kept)
        await self._keys.leave(attempt.request, outcome, kept, began=attempt.invoked)
