"""The objects that the parts of an SQLite store share."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from toolpost.contracts.clock import Clock
from toolpost.stores.chain import LogKey
from toolpost.stores.changes import Changes
from toolpost.stores.encryption import RowCipher
from toolpost.stores.sqlite.database import Reader
from toolpost.stores.sqlite.event_appender import EventAppender
from toolpost.stores.sqlite.liveness import Liveness
from toolpost.stores.writer import Writer


class SQLiteContext(NamedTuple):
    """The writer and the reader of a database, and the services of its parts.

    `key` is that of the event log. `owner_id` is the ID of this process, the owner of its intents, claims and keys.
    """

    writer: Writer[sqlite3.Connection]
    reader: Reader
    appender: EventAppender
    cipher: RowCipher
    liveness: Liveness
    changes: Changes
    clock: Clock
    key: LogKey
    owner_id: str
