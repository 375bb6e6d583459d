"""Redact the log records of the package."""

from __future__ import annotations

import logging
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolpost.policy.redaction import Redactor

# A filter of a logger does not see the records of its child loggers; each needs a separate filter.
LOGGERS = (
    "toolpost.agents",
    "toolpost.auth",
    "toolpost.events",
    "toolpost.gateway",
    "toolpost.runtime",
    "toolpost.sources.mcp",
    "toolpost.sources.websocket",
    "toolpost.stores",
    "toolpost.toolbox",
    "toolpost.tools",
)
LOG_FIELDS = "toolpost_fields"  # attribute of a log record: the fields of a structured line beside its message
_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_formatter = logging.Formatter()


class LogRedaction(logging.Filter):
    """Logging filter that redacts message, fields and traceback of each record and keeps the message on one line."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = escape_controls(self._redactor.message(record.getMessage())), ()
        if fields := getattr(record, LOG_FIELDS, None):
            setattr(record, LOG_FIELDS, self._redactor.plain(fields))
        if record.exc_info:
            # Handlers print `exc_text` if it is set; the exception itself would be printed unredacted.
            record.exc_text = self._redactor.redact(_formatter.formatException(record.exc_info))
            record.exc_info = None
        elif record.exc_text:
            record.exc_text = self._redactor.redact(record.exc_text)
        return True


@contextmanager
def redacted_logs(redactor: Redactor) -> Generator[None]:
    """Redact the package's log records while the context is open; several redactors can be active concurrently."""
    redaction = LogRedaction(redactor)
    for name in LOGGERS:
        logging.getLogger(name).addFilter(redaction)
    try:
        yield
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(redaction)


def escape_controls(text: str) -> str:
    """Escape line breaks and other control characters: one text must not look like two log records."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
