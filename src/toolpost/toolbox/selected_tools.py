"""Some of the tools of a Toolbox, for callers who see no others."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from toolpost.contracts.errors import ToolError, ToolNotFoundError, ToolSourceDownError, nearest
from toolpost.contracts.outcomes import Failed

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from toolpost.catalog.entry import Entry
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import Outcome


class ViewedBox(Protocol):
    """What a view needs of a Toolbox."""

    registry: ToolRegistry
    settings: Settings

    async def wait_for_tool(self, name: str) -> None:
        """Wait for a tool whose source is connecting."""
        ...

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        user: str | None = None,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        run_id: str | None = None,
        context: ToolContext | None = None,
    ) -> Coroutine[Any, Any, Outcome]:
        """Call a tool."""
        ...


class SelectedTools:
    """The tools that `only`, the arguments of `ToolRegistry.select`, selects; a call of another one finds none.

    The catalog may change: every question is answered as it is then.
    """

    def __init__(self, box: ViewedBox, only: Mapping[str, Any]) -> None:
        self.only = only
        self._box = box
        self._accepts = box.registry.select(**only)

    def entries(self) -> list[Entry]:
        """Return the entries of the tools, in the order of the catalog."""
        registry = self._box.registry
        return [registry.find(spec.name) for spec in registry.specs() if self._accepts(spec)]

    def has(self, name: str) -> bool:
        """Return whether a tool of this name is selected; without a selection also those that are gone."""
        registry = self._box.registry
        return not self.only or (registry.has(name) and self._accepts(registry.find(name).spec))

    def find(self, name: str) -> Entry:
        """Return the entry of a tool; ToolNotFoundError suggests the nearest name among those selected."""
        registry = self._box.registry
        if registry.has(name) and self._accepts(registry.find(name).spec):
            return registry.find(name)
        seen = [spec.name for spec in registry.specs() if self._accepts(spec)]
        raise ToolNotFoundError(name, suggestion=nearest(name, seen))

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        user: str | None = None,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        run_id: str | None = None,
        context: ToolContext | None = None,
    ) -> Outcome:
        """Call a tool, as `Toolbox.call` does."""
        if self.only:
            # A tool may be known only when its source has connected, and may then be another than was listed before.
            with suppress(ToolSourceDownError):
                await self._box.wait_for_tool(name)
            try:
                self.find(name)
            except ToolError as error:
                return Failed("", run_id or "", name, error)
        return await self._box.call(
            name,
            arguments,
            user=user,
            timeout_s=timeout_s,
            idempotency_key=idempotency_key,
            run_id=run_id,
            context=context,
        )
