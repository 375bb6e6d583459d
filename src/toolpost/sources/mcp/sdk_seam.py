"""The private parts of the MCP SDK and of FastMCP that Toolpost uses, all in this module.

Another version of the SDK may lack one. For a `PrivatePart`, the public way is taken then, and a warning is logged
once. `tests/sources/mcp/test_sdk_seam.py` fails if the installed version lacks one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

from mcp.server import Server

_log = logging.getLogger(__name__)


class PrivatePart(NamedTuple):
    """A private attribute of the SDK, and the effect of its absence."""

    name: str
    without: str

    def of(self, owner: object) -> Any:
        """Return the attribute of an object of the SDK; None if this version does not have it."""
        found = getattr(owner, self.name, None)
        if found is None:
            _report(self, type(owner).__name__)
        return found


class Parts:
    """The private parts by name."""

    STAMP = PrivatePart(
        "_stamp", "requests to MCP servers take the slower public way and declare the same capabilities"
    )
    REQUEST_OUTBOUND = PrivatePart("_request_outbound", "questions to MCP clients are sent by the typed public methods")
    CONNECTION = PrivatePart(
        "_connection", "MCP clients with a session get no notifications of changes, and their log level is the default"
    )


@cache
def _report(part: PrivatePart, owner: str) -> None:
    _log.warning("mcp %s has no %s.%s: %s", version("mcp"), owner, part.name, part.without)


def lowlevel_server(server: Any) -> Server[Any] | None:
    """Return the low-level server of a FastMCP server or of a server of the SDK; None for another object."""
    found = getattr(server, "_mcp_server", None) or getattr(server, "_lowlevel_server", server)
    return found if hasattr(found, "get_request_handler") else None


def lifespan_of(server: Any) -> Callable[[], AbstractAsyncContextManager[Any]]:
    """Return the lifespan of a FastMCP server; an empty one for a server of the SDK, which has a public lifespan."""
    found: Callable[[], AbstractAsyncContextManager[Any]] = getattr(server, "_lifespan_manager", nullcontext)
    return found
