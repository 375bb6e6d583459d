"""The contenders in our own environment: the floor, an operation of an API's document, and the same by a manual."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bench.core.harness import Contender
from bench.http import own as http
from bench.http.floor import raw_api
from bench.http.server import ECHO
from bench.mcp.endpoint import ARGUMENTS, target
from bench.mcp.seats import USUAL, seated
from bench.utcp import names
from toolpost.configuration.settings import LimitSettings, Settings
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.source_kinds import TransportType
from toolpost.toolbox.box import Toolbox


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    """All of them on the server that was told."""
    url = target()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-bench-")))
        raw = await stack.enter_async_context(raw_api(url))
        found = await seated(names.FLOOR, lambda: raw.get(f"/{ECHO}", ARGUMENTS))
        boxes = [
            (names.OPENAPI, http.settings(url, None)),
            (names.UTCP, settings(url, None)),
            (names.SQLITE, settings(url, folder)),
        ]
        for name, given in boxes:
            box = await stack.enter_async_context(Toolbox(settings=given))
            found += await seated(name, http.through(box), settle=box.store.events.flush)
        yield found


def manual(url: str) -> dict[str, Any]:
    """The operation of the server as a manual describes it, with the same schemas as the document has."""
    message = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
    template = {"call_template_type": "http", "http_method": "GET", "url": f"{url}/{ECHO}"}
    tool = {
        "name": ECHO,
        "description": "Say the message again.",
        "inputs": {**message, "additionalProperties": False},
        "outputs": message,
        "tool_call_template": template,
    }
    return {"utcp_version": "1.0.1", "manual_version": "1.0.0", "tools": [tool]}


def settings(url: str, data_dir: Path | None) -> Settings:
    """A box with this one source; as many calls at once as are made, since peers have no limit."""
    source = ExternalToolConfig(
        name="api",
        transport=TransportType.UTCP,
        connection=json.dumps(manual(url)),
        max_concurrency=http.MAX_CONCURRENCY,
        required=True,
    )
    limits = LimitSettings(absolute_max_parallel=USUAL.callers)
    return Settings(data_dir=data_dir, builtins="none", sources=[source], limits=limits)
