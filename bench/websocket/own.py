"""The contenders: the floor, and Toolpost with its own multiplexing."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.core.harness import Contender
from bench.mcp.endpoint import ARGUMENTS, target
from bench.mcp.seats import USUAL, Call, seated
from bench.websocket import names
from bench.websocket.floor import raw_link
from toolpost.configuration.settings import LimitSettings, Settings
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.outcomes import Completed
from toolpost.contracts.source_kinds import TransportType
from toolpost.sources.websocket.options import WebSocketTool
from toolpost.toolbox.box import Toolbox

ECHO = "echo"
MAX_CONCURRENCY = 100


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    """All of them on the server that was told."""
    url = target()
    async with AsyncExitStack() as stack:
        raw = await stack.enter_async_context(raw_link(url))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-bench-")))
        found = await seated(names.FLOOR, lambda: raw.ask(ARGUMENTS))
        for name, data_dir in ((names.MEMORY, None), (names.SQLITE, folder)):
            box = await stack.enter_async_context(Toolbox(settings=settings(url, data_dir)))
            found += await seated(name, through(box), settle=box.store.events.flush)
        yield found


def through(box: Toolbox) -> Call:
    """A call of the tool through a box."""

    async def call() -> Completed:
        outcome = await box.call(f"api.{ECHO}", ARGUMENTS)
        if not isinstance(outcome, Completed):
            raise RuntimeError(f"the call under test {outcome.status}: {outcome}")  # noqa: TRY004 - no caller's mistake
        return outcome

    return call


def settings(url: str, data_dir: Path | None) -> Settings:
    """A box with this one source; as many calls at once as are made, since a bare client has no limit."""
    message = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
    tool = WebSocketTool(
        description="Say the message again.",
        input_schema=message,
        output_schema=message,
        message={"message": "{message}"},
        side_effects="read",
    )
    source = ExternalToolConfig(
        name="api",
        transport=TransportType.WEBSOCKET,
        connection=url,
        options={"tools": {ECHO: tool.model_dump()}, "mode": "multiplexed"},
        max_concurrency=MAX_CONCURRENCY,
        required=True,
    )
    limits = LimitSettings(absolute_max_parallel=USUAL.callers)
    return Settings(data_dir=data_dir, builtins="none", sources=[source], limits=limits)
