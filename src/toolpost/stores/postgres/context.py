"""The objects that the parts of a PostgreSQL store share."""

from __future__ import annotations

from typing import NamedTuple

from toolpost.contracts.clock import Clock
from toolpost.stores.chain import LogKey
from toolpost.stores.changes import Changes
from toolpost.stores.encryption import RowCipher
from toolpost.stores.postgres.changes import PostgresNotifications
from toolpost.stores.postgres.database import Connection, PostgresReader
from toolpost.stores.postgres.event_appender import PostgresEventAppender
from toolpost.stores.postgres.liveness import Leases
from toolpost.stores.writer import Writer


class PostgresContext(NamedTuple):
    """The writer and the readers of a database, and the services of its parts.

    `key` is that of the event log. Functions of the writer may run twice, after a conflict with another process.
    """

    writer: Writer[Connection]
    reader: PostgresReader
    appender: PostgresEventAppender
    cipher: RowCipher
    liveness: Leases
    changes: Changes
    notifications: PostgresNotifications
    clock: Clock
    key: LogKey

    @property
    def owner_id(self) -> str:
        """The ID of this process, the owner of its intents, claims and keys; another one after it lost its lease."""
        return self.liveness.owner_id
