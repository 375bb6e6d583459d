"""Follow the configuration file of an open Toolbox."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from toolpost.configuration.defaults import ENV_FILE, FILE_NAME
from toolpost.configuration.loading import LoadedSettings
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.events import EventCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.reload import Reload

_POLL_S = 0.5
_SETTLE_S = 0.1  # a file may be read while it is being written


class ConfigFollower:
    """Apply the configuration file of an open Toolbox whenever it or the `.env` beside it changes.

    `load` reads the file. `report` is called with the changes, or with the error of an invalid file, which changes
    nothing. An unchanged file is reported after `reload_now`, after an invalid file, and after pending restarts.
    Contents are compared instead of watching file system events: this also detects files that are replaced by a rename,
    changed twice within one clock tick, or reached through links and mounts.
    """

    def __init__(
        self,
        box: Toolbox,
        load: Callable[[], LoadedSettings],
        report: Callable[[Reload | ConfigError], Awaitable[None]],
    ) -> None:
        self._box = box
        self._load = load
        self._report = report
        self._requested = asyncio.Event()
        self._differed = False
        config = box.config_path or Path.cwd() / FILE_NAME
        self._files = (config, config.parent / ENV_FILE)

    def reload_now(self) -> None:
        """Apply the file immediately, without waiting for a change."""
        self._requested.set()

    async def run(self) -> None:
        """Follow the file until cancelled."""
        applied: list[bytes | None] | None = None  # it may have changed since the Toolbox read it
        while True:
            seen = await asyncio.to_thread(self._read)
            is_requested = self._requested.is_set()
            if is_requested or (seen != applied and await self._is_settled(seen)):
                self._requested.clear()
                applied = seen
                await self._apply(requested=is_requested)
            await self._pause(_POLL_S)

    async def _is_settled(self, seen: list[bytes | None]) -> bool:
        await self._pause(_SETTLE_S)
        return await asyncio.to_thread(self._read) == seen

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._requested.wait()
        except TimeoutError:
            pass

    def _read(self) -> list[bytes | None]:
        return [_content(file) for file in self._files]

    async def _apply(self, *, requested: bool) -> None:
        try:
            reload = await self._box.reload(await asyncio.to_thread(self._load))
        except Exception as raised:  # noqa: BLE001 - sources of plug-ins are opened and closed; the next change may work
            error = raised if isinstance(raised, ConfigError) else ConfigError(f"{type(raised).__name__}: {raised}")
            self._box.router.emitter.emit_config(EventCode.CONFIG_REFUSED, {"reason": str(error)})
            self._differed = True
            await self._report(error)
            return
        is_news = reload or requested or self._differed
        self._differed = bool(reload.restart or reload.failed)
        if is_news:
            await self._report(reload)


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None
