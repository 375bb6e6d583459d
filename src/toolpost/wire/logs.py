"""What other libraries write to their logs about our connections: never a query string, a header or a body."""

from __future__ import annotations

import logging
import re
from functools import cache

# These write headers, session ids and whole messages, tokens and arguments included. Whoever wants that can still ask
# for it by setting a logger's level; it is not switched on by a root logger that was set to DEBUG for other reasons.
_TALKATIVE = ("httpcore2", "mcp", "client", "fastmcp")
_QUERY = re.compile(r"(https?://[^\s?\"'<>]+)\?[^\s\"'<>]*")


class _WithoutQueries(logging.Filter):
    """Cuts the query off every address."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if "?" in text:
            record.msg, record.args = _QUERY.sub(r"\1?...", text), ()
        return True


@cache
def discreet() -> None:
    """Make the libraries underneath keep secrets to themselves; once for the process."""
    for name in _TALKATIVE:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
        # Where nobody set logging up, Python writes warnings to stderr: of a server that misbehaves with a traceback,
        # and what came of it is told in our own words.
        logger.addHandler(logging.NullHandler())
    logging.getLogger("httpx2").addFilter(_WithoutQueries())
