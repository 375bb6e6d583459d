"""Private parts of the MCP SDK that fast paths use.

Another version of the SDK may lack one. Then the public way is taken, and a warning says so once.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

_log = logging.getLogger(__name__)


class PrivatePart(NamedTuple):
    """A private attribute of the SDK, and what differs without it."""

    name: str
    without: str

    def of(self, owner: object) -> Any:
        """Return the attribute of an object of the SDK; None if this version has none."""
        found = getattr(owner, self.name, None)
        if found is None:
            _report(self, type(owner).__name__)
        return found


STAMP = PrivatePart("_stamp", "requests to MCP servers take the slower public way, and declare what all calls have")
REQUEST_OUTBOUND = PrivatePart("_request_outbound", "questions to MCP clients are sent by the typed public methods")
CONNECTION = PrivatePart("_connection", "older MCP clients hear of no changes, and their log level stays the default")


@cache
def _report(part: PrivatePart, owner: str) -> None:
    _log.warning("mcp %s has no %s.%s: %s", version("mcp"), owner, part.name, part.without)
