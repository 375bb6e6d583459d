"""Sources of table rows, which are connected by the first call to one of their tools."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolpost.contracts.errors import ToolNotFoundError, ToolSourceDownError
from toolpost.contracts.sources import HoldingSource
from toolpost.sources.base import BaseSource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from toolpost.contracts.calls import AuthorizedCall, ToolOutput
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.questions import Question
    from toolpost.contracts.sources import ToolSource
    from toolpost.contracts.spec import Tool


class IdleSource(BaseSource):
    """A placeholder in the catalog until the first call to one of its tools has connected the source."""

    def __init__(self, config: ExternalToolConfig, tools: Sequence[Tool]) -> None:
        super().__init__(config)
        self._tools = tools

    async def discover(self) -> Sequence[Tool]:
        """Return the tools as the rows describe them."""
        return self._tools

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Raise ToolSourceDownError: calls wait for the source itself."""
        raise ToolSourceDownError(f"source {self.name!r} is not connected", tool_name=call.tool.spec.name)


class ApprovedSource(IdleSource):
    """A source that is created and connected after approval; its tools remain those of the rows.

    One approval covers the command or the module, and therefore all later calls; the policy still checks each call.
    """

    def __init__(
        self,
        config: ExternalToolConfig,
        tools: Sequence[Tool],
        question: Question,
        make: Callable[[], Awaitable[ToolSource]],
    ) -> None:
        super().__init__(config, tools)
        self._question = question
        self._make = make
        self._is_approved = False
        self._connecting = asyncio.Lock()
        self._inner: ToolSource | None = None
        self._listed: dict[str, Tool] = {}

    @property
    def is_connected(self) -> bool:
        """Whether the source was approved and connected."""
        return self._inner is not None

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Run a call on the approved source; before the approval, return the question."""
        answer = call.request.answers.get(self._question.key)
        if answer is not None and answer.decision == "approve":
            self._is_approved = True
        if not self._is_approved:
            return self._question
        async with self._connecting:
            inner = await self._connect()
        tool = self._listed.get(call.tool.spec.name)
        if tool is None:
            raise ToolNotFoundError(call.tool.spec.name)
        permitted = call.permitted
        validated = replace(permitted.validated, tool=tool)
        return await inner.invoke(replace(call, permitted=replace(permitted, validated=validated)))

    def release(self, call_id: str) -> None:
        """Release a call that the source keeps open and that will not be answered."""
        if isinstance(self._inner, HoldingSource):
            self._inner.release(call_id)

    async def _connect(self) -> ToolSource:
        """Connect the source if it is not connected; after a failure the next call creates it again."""
        if self._inner is None:
            inner = await self._make()
            try:
                self._listed = {tool.spec.name: tool for tool in await inner.discover()}
            except BaseException:
                await inner.close()
                raise
            self._inner = inner
        return self._inner

    async def close(self) -> None:
        """Close the source if it was connected."""
        inner, self._inner = self._inner, None
        if inner is not None:
            await inner.close()
