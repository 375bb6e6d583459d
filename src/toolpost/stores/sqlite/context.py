"""What the parts of an SQLite store share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from toolpost.stores.chain import LogKey
from toolpost.stores.changes import Changes
from toolpost.stores.encryption import RowCipher
from toolpost.stores.sqlite.database import Reader
from toolpost.stores.sqlite.event_appender import EventAppender
from toolpost.stores.sqlite.liveness import Liveness
from toolpost.stores.sqlite.writer import Writer


class SQLiteContext(NamedTuple):
    """The writer and the reader of a database, and the services of its parts."""

    writer: Writer
    reader: Reader
    appender: EventAppender
    cipher: RowCipher
    liveness: Liveness
    changes: Changes
    clock: Callable[[], float]

    @property
    def key(self) -> LogKey:
        """The key of the event log."""
        return self.appender.ledger.key

    @property
    def owner_id(self) -> str:
        """The ID of this process, the owner of its intents, claims and keys."""
        return self.liveness.owner_id
