"""Takes known secrets out of what this package logs, while a Toolbox or a ToolNode is open."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from toolpost.policy.redaction import Redactor

# A filter of a logger does not see the records of the loggers below it, so that each needs its own.
LOGGERS = (
    "toolpost.auth",
    "toolpost.events",
    "toolpost.runtime",
    "toolpost.sources.mcp",
    "toolpost.sources.websocket",
    "toolpost.stores",
    "toolpost.toolbox",
)
_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_formatter = logging.Formatter()


class LogRedaction(logging.Filter):
    """Redacts the message and the traceback of each record, and keeps the message on one line."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = one_line(self._redactor.message(record.getMessage())), ()
        if record.exc_info:
            # Whoever formats the record uses this text; the exception itself would be told as it is.
            record.exc_text = self._redactor.told(_formatter.formatException(record.exc_info))
            record.exc_info = None
        elif record.exc_text:
            record.exc_text = self._redactor.told(record.exc_text)
        return True


@contextmanager
def redacted_logs(redactor: Redactor) -> Generator[None]:
    """Redact all that the package logs; of several that are open at once, each takes out what it knows."""
    redaction = LogRedaction(redactor)
    for name in LOGGERS:
        logging.getLogger(name).addFilter(redaction)
    try:
        yield
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(redaction)


def one_line(text: str) -> str:
    """A text with its line breaks and other control characters escaped, so that it cannot pass for two records."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
