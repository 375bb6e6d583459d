"""The ledger: how many runs the event log should hold, what their seals add up to, and the key of them all.

The sum of the seals of all runs changes with each of them, so that a run that is removed, added or put back to an
earlier state shows, and it costs one row however long the log is. Pruning takes runs out of the sum.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

from toolpost.contracts.errors import StoreError
from toolpost.stores.chain import DIGEST_BYTES, KEY_BYTES, LogKey
from toolpost.stores.damage import UNREADABLE

if TYPE_CHECKING:
    import sqlite3

    from toolpost.stores.sealing import RowSealer

_log = logging.getLogger("toolpost.stores")
_ROW = ("ledger", "1", "key")
_BITS = 8 * DIGEST_BYTES
_LOAD = "SELECT last_event, last_run, runs, total, seal FROM ledger"
_SAVE = "UPDATE ledger SET last_event = ?, last_run = ?, runs = ?, total = ?, seal = ?"


class Ledger:
    """The counts of a log and the sum of its seals, as of the last transaction. Mutable: it goes with every event."""

    __slots__ = ("is_intact", "key", "last_event", "last_run", "runs", "total")

    def __init__(self, key: LogKey) -> None:
        self.key = key
        self.last_event = self.last_run = self.runs = self.total = 0
        self.is_intact = True

    def load(self, db: sqlite3.Connection) -> None:
        """Read the row; one that was changed is never sealed again, so that this goes on to show."""
        self.last_event, self.last_run, self.runs, total, seal = db.execute(_LOAD).fetchone()
        self.total = int.from_bytes(total, "big")
        self.is_intact = seal == self._seal()

    def save(self, db: sqlite3.Connection) -> None:
        """Write the row."""
        seal = self._seal() if self.is_intact else b""
        total = self.total.to_bytes(DIGEST_BYTES, "big")
        db.execute(_SAVE, (self.last_event, self.last_run, self.runs, total, seal))

    def change(self, *, old: bytes = b"", new: bytes = b"") -> None:
        """Take a seal out of the sum and another in."""
        self.total = (self.total - int.from_bytes(old, "big") + int.from_bytes(new, "big")) % (1 << _BITS)

    def find_breaks(self, seals: list[bytes]) -> list[str]:
        """What is wrong with the runs as a whole, given the seals of those that are there."""
        if not self.is_intact:
            return ["the ledger of the log was changed, so that nobody can tell how many runs there should be"]
        if self.runs != len(seals):
            return [f"the log should hold {self.runs} runs and holds {len(seals)}: runs were removed or added"]
        if self.total != sum(int.from_bytes(seal, "big") for seal in seals) % (1 << _BITS):
            return ["a run was exchanged for another, or put back to how it was before"]
        return []

    def _seal(self) -> bytes:
        return self.key.seal("ledger", self.last_event, self.last_run, self.runs, self.total)


def load_ledger(db: sqlite3.Connection, sealer: RowSealer) -> Ledger | None:
    """The ledger of a log; None where there is none, or its key is lost.

    The key is random and kept sealed with the folder's, so that it outlives a change of that.
    """
    row = db.execute("SELECT key FROM ledger").fetchone()
    if row is None:
        return None
    try:
        ledger = Ledger(LogKey(bytes.fromhex(sealer.open(row[0], *_ROW))))
    except StoreError as error:
        if error.error_code != UNREADABLE:
            raise
        return None
    ledger.load(db)
    return ledger


def make_ledger(db: sqlite3.Connection, sealer: RowSealer) -> Ledger:
    """A new ledger; in place of one whose key is lost, one that goes on to say that it was changed."""
    secret = secrets.token_bytes(KEY_BYTES)
    ledger, sealed = Ledger(LogKey(secret)), sealer.seal(secret.hex(), *_ROW)
    if db.execute("UPDATE ledger SET key = ?, seal = x''", (sealed,)).rowcount:
        _log.warning("the key of the event log was changed: what was told before cannot be verified any more")
        ledger.load(db)
        return ledger
    db.execute("INSERT INTO ledger VALUES (1, ?, 0, 0, 0, x'', x'')", (sealed,))
    ledger.save(db)
    return ledger
