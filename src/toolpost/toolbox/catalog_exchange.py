"""Put the tools of sources into the catalog: drafted in a thread, exchanged in one step."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from toolpost.toolbox.source_tools import CatalogDraft, PreparedTool, free_replaced

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from toolpost.auth.credentials import Authorizer
    from toolpost.configuration.protected_files import ProtectedFiles
    from toolpost.contracts.sources import ToolSource
    from toolpost.contracts.spec import Tool
    from toolpost.policy.redaction import Redactor
    from toolpost.toolbox.source_index import ManagedSource, SourceIndex


class CatalogExchange:
    """Replace the tools of sources in the catalog.

    `joining` is true while a source enters the catalog for the first time. The files that a source read are protected,
    and its secrets are redacted, before its tools can be called.
    """

    _MAX_DRAFTS = 5

    def __init__(
        self, index: SourceIndex, authorizer: Authorizer, redactor: Redactor, protected: ProtectedFiles | None
    ) -> None:
        self.joining = False
        self._index = index
        self._authorizer = authorizer
        self._redactor = redactor
        self._protected = protected
        self._lock = asyncio.Lock()  # one of two concurrent drafts of the catalog would be discarded

    async def fill(
        self, managed: ManagedSource, source: ToolSource, found: Sequence[Tool], *, answered: bool = False
    ) -> None:
        """Put the tools of a source into the catalog once the sources before it have entered."""
        async with managed.filling:
            # In a thread: checking hundreds of tools takes a while.
            prepared = await asyncio.to_thread(managed.tools.prepare, source, found)
            managed.listed = True
            for entered in managed.before:
                await entered.wait()
            await self._protect(managed, source)
            await self._exchange(managed, prepared, source.problems, answered=answered)
        managed.entered.set()

    async def refill(self, managed: ManagedSource, tools: Sequence[Tool], problems: Sequence[str]) -> None:
        """Replace the tools of a source that has answered; of two concurrent listings the later one stays."""
        source = managed.source
        if source is not None:
            async with managed.filling:
                prepared = await asyncio.to_thread(managed.tools.prepare, source, tools)
                await self._exchange(managed, prepared, problems, answered=True)

    async def place_idle(
        self, managed: ManagedSource, source: ToolSource, tools: Sequence[Tool], *, answered: bool
    ) -> None:
        """Put the tools that table rows describe into the catalog."""
        prepared = await asyncio.to_thread(managed.tools.prepare, source, tools)
        await self._exchange(managed, prepared, (), answered=answered)

    async def prepare(self, managed: ManagedSource, source: ToolSource) -> list[PreparedTool]:
        """List and check the tools of a source that is to replace another."""
        prepared = await asyncio.to_thread(managed.tools.prepare, source, await source.discover())
        await self._protect(managed, source)
        return prepared

    async def replace(self, old: ManagedSource, new: ManagedSource, prepared: Sequence[PreparedTool]) -> None:
        """Replace a source and its tools by another one of the same name, in one step."""
        problems = () if new.source is None else new.source.problems
        await self._exchange(new, prepared, problems, answered=True, instead_of=old)

    async def readmit_collided(self) -> None:
        """Retry tools with names that were taken and may be free now."""
        for managed in list(self._index.by_name.values()):
            listing = managed.tools.listing
            if listing.collided and managed.source is not None:
                await self.refill(managed, [*listing.tools.values(), *listing.collided], managed.source.problems)

    async def withdraw(self, sources: Collection[ManagedSource]) -> None:
        """Remove the tools of these sources from the catalog permanently."""
        for managed in sources:
            managed.tools.withdrawn = True  # a thread may be checking a listing
        try:
            for managed in sources:
                await self._exchange(managed, (), (), answered=False)
        finally:
            for managed in sources:
                managed.tools.clear()  # those that a cancelled caller did not reach

    async def _protect(self, managed: ManagedSource, source: ToolSource) -> None:
        """Redact the secrets that a source found in its description, and protect the files that it has read."""
        self._redactor.learn(source.secrets)
        managed.access.secrets |= source.secrets
        if source.files and self._protected is not None:  # in a thread: a document may have thousands of files
            await asyncio.to_thread(self._protected.add_read, managed.config.name, source.files)

    async def _exchange(
        self,
        managed: ManagedSource,
        prepared: Sequence[PreparedTool],
        problems: Sequence[str],
        *,
        answered: bool,
        instead_of: ManagedSource | None = None,
    ) -> None:
        """Replace the tools of a source; with `instead_of`, those of the source that it replaces."""
        make_draft = partial(
            managed.tools.draft, prepared, problems, instead_of=None if instead_of is None else instead_of.tools
        )
        try:
            async with self._lock:
                replaced: list[Any] | None = None
                for _ in range(self._MAX_DRAFTS):
                    draft = await asyncio.to_thread(make_draft)
                    if (replaced := self._commit(managed, draft, instead_of, answered=answered)) is not None:
                        break
                if replaced is None:  # the catalog changes all the time, but not between these two steps
                    replaced = self._commit(managed, make_draft(), instead_of, answered=answered)
        finally:
            managed.filled.set()
        if replaced:
            await asyncio.to_thread(free_replaced, replaced)

    def _commit(
        self, managed: ManagedSource, draft: CatalogDraft, instead_of: ManagedSource | None, *, answered: bool
    ) -> list[Any] | None:
        """Put a draft into effect and return the parts that it replaced; None if the draft is out of date."""
        self.joining = instead_of is None and not managed.filled.is_set()
        try:
            replaced = managed.tools.commit(draft)
        finally:
            self.joining = False
        if replaced is None:
            return None
        if instead_of is not None:
            instead_of.tools.give_up()
            managed.entered.set()
            self._index.by_name[managed.config.name] = managed
            self._authorizer.install(managed.config.name, managed.access)
        if answered:
            if managed.is_placeholder:
                self._index.connecting.discard(managed.config.name)
            managed.mark_up()
        return replaced
