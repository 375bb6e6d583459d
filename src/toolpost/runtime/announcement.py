"""Telling the application that a person is needed, by a function of its own or a coroutine."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.contracts.questions import OnPending, PendingAction
    from toolpost.runtime.background import Background

_log = logging.getLogger("toolpost.runtime")


def announcement(on_pending: OnPending | None, background: Background) -> Callable[[PendingAction], None] | None:
    """What tells of a question and waits for nobody; whatever goes wrong, the question stands."""
    if on_pending is None:
        return None

    def announce(action: PendingAction) -> None:
        try:
            told = on_pending(action)
        except Exception:  # noqa: BLE001 - foreign code
            _log.exception("on_pending failed on %s", action.id)
        else:
            if inspect.isawaitable(told):
                background.start(_ended(told, action.id))

    return announce


async def _ended(told: Awaitable[None], action_id: str) -> None:
    try:
        await told
    except Exception:  # noqa: BLE001 - foreign code
        _log.exception("on_pending failed on %s", action_id)
