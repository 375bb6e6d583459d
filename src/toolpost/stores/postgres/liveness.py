"""Leases: a process that has the store open is alive while it renews its row, on the time of the database."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from importlib.metadata import version
from typing import NamedTuple

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.store_status import OwnerStatus
from toolpost.stores.ledger import Ledger
from toolpost.stores.postgres.connections import Row
from toolpost.stores.postgres.database import Connection

LEASE_S = 15.0
RENEWALS = 3  # a lease

_MAIN = "SELECT last_event, last_run, runs, total, mac FROM ledger WHERE id = 1 FOR UPDATE"
_SAVE_MAIN = "UPDATE ledger SET last_event = %s, last_run = %s, runs = %s, total = %s, mac = %s WHERE id = 1"
_REGISTER = """
INSERT INTO owners (id, epoch, until, started_at, host, pid, version, batch, last_event, last_run, runs, total, mac)
VALUES (%s, %s, toolpost.now() + %s, toolpost.now(), %s, %s, %s, 0, %s, %s, %s, %s, %s)
"""
_RENEW = "UPDATE owners SET until = toolpost.now() + %s WHERE id = %s AND dead_at IS NULL"
# A row that is locked belongs to a process that writes at this moment.
_LAPSED = """
SELECT id, last_event, last_run, runs, total, mac FROM owners
WHERE until < toolpost.now() AND dead_at IS NULL AND id <> %s FOR UPDATE SKIP LOCKED
"""
_BURY = """
UPDATE owners SET dead_at = toolpost.now(), last_event = %s, last_run = %s, runs = %s, total = %s, mac = %s
WHERE id = %s
"""
_LIVING = "SELECT id FROM owners WHERE id = ANY(%s) AND dead_at IS NULL"
_OWN = "SELECT last_event, last_run, runs, total, mac FROM owners WHERE id = %s AND dead_at IS NULL FOR UPDATE"
_REGISTERED = """
SELECT id, dead_at IS NULL AND until > toolpost.now(), host, pid, version, started_at FROM owners ORDER BY started_at
"""
_FORGOTTEN = "DELETE FROM owners WHERE dead_at < toolpost.now() - %s"
_DEAD_KEPT_S = 86_400.0  # a process that wakes later cannot learn whether its last transaction was committed


def list_owners(db: Connection) -> list[OwnerStatus]:
    """Return the registered processes, with those that have ended for less than a day."""
    rows = db.execute(_REGISTERED).fetchall()
    names = ("id", "is_alive", "host", "pid", "version", "started_at")
    return [OwnerStatus(**dict(zip(names, row, strict=True))) for row in rows]


class Owner(NamedTuple):
    """A registration of this process; after it lost its lease, it registers again under a new ID and epoch."""

    id: str
    epoch: int


class Leases:
    """The lease of this process, and those of others.

    A lease that has ended is given up by another process, in the transaction that adopts the first records of the
    owner. Until then the owner may still renew it, such as after a restart of the server. A process gives up others
    only after it has held a lease for `probation_s` without a gap: after an outage all leases have ended.

    The runs of an owner that has ended are added to the row of `ledger`, which also counts the rows of owners.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        clock: Clock = SYSTEM_CLOCK,
        lease_s: float = LEASE_S,
        probation_s: float | None = None,
    ) -> None:
        self.lease_s = lease_s
        self._probation_s = lease_s if probation_s is None else probation_s
        self.own: Ledger = ledger
        self._clock = clock
        self._owner = Owner("", 0)
        self._steady_since = self._renewed_at = clock.monotonic()

    @property
    def owner_id(self) -> str:
        return self._owner.id

    @property
    def is_valid(self) -> bool:
        """Whether no other process can have given up this owner yet, by the clock of this process."""
        return self._clock.monotonic() - self._renewed_at < self.lease_s

    def register(self, db: Connection) -> None:
        """Insert a row for this process, in a separate transaction."""
        owner = Owner(f"own_{self._clock.secret_bytes(12).hex()}", self._owner.epoch + 1)
        own = self.own
        own.last_event = own.last_run = own.runs = own.total = 0
        own.is_intact = True
        facts = (platform.node(), os.getpid(), version("toolpost"))
        with db.transaction():
            main = self._load_main(db)
            main.last_run += 1
            db.execute(_SAVE_MAIN, main.columns())
            db.execute(_REGISTER, (owner.id, owner.epoch, self.lease_s, *facts, *own.columns()))
        self._owner = owner
        self._steady_since = self._renewed_at = self._clock.monotonic()

    def renew(self, db: Connection) -> bool:
        """Renew the lease; return False if another process has given up this owner."""
        at = self._clock.monotonic()
        if not db.execute(_RENEW, (self.lease_s, self.owner_id)).rowcount:
            return False
        self.note_renewal(at)
        return True

    def note_renewal(self, at: float) -> None:
        """Note that a transaction that began at this time has renewed the lease."""
        if at - self._renewed_at > self.lease_s:
            self._steady_since = at
        self._renewed_at = at

    def alive(self, db: Connection, owner_id: str) -> bool:
        return owner_id in self._living(db, [owner_id])

    def ended(self, db: Connection, owner_ids: Iterable[str]) -> list[str]:
        """Return the owners that have ended; from this transaction on, none of them can write."""
        self._bury_lapsed(db)
        wanted = list(owner_ids)
        living = self._living(db, wanted)
        return [owner_id for owner_id in wanted if owner_id not in living]

    def sweep(self, db: Connection) -> None:
        """Give up owners whose leases have ended, and delete rows of owners that ended a day ago."""
        self._bury_lapsed(db)
        gone = db.execute(_FORGOTTEN, (_DEAD_KEPT_S,)).rowcount
        if gone:
            main = self._load_main(db)
            main.last_run -= gone
            db.execute(_SAVE_MAIN, main.columns())

    def release(self, db: Connection) -> None:
        """End the lease and delete the row, in a separate transaction."""
        with db.transaction():
            row = db.execute(_OWN, (self.owner_id,)).fetchone()
            if row is not None:
                main = self._load_main(db)
                main.last_run -= 1
                self._add(main, row)
                db.execute(_SAVE_MAIN, main.columns())
                db.execute("DELETE FROM owners WHERE id = %s", (self.owner_id,))

    def _living(self, db: Connection, owner_ids: list[str]) -> set[str]:
        living = {owner_id for (owner_id,) in db.execute(_LIVING, (owner_ids,))}
        return living | {self.owner_id}

    def _bury_lapsed(self, db: Connection) -> None:
        if self._clock.monotonic() - self._steady_since < self._probation_s:
            return
        lapsed = db.execute(_LAPSED, (self.owner_id,)).fetchall()
        if not lapsed:
            return
        main, empty = self._load_main(db), Ledger(self.own.key)
        for owner_id, *row in lapsed:
            self._add(main, tuple(row))
            db.execute(_BURY, (*empty.columns(), owner_id))
        db.execute(_SAVE_MAIN, main.columns())

    def _load_main(self, db: Connection) -> Ledger:
        main = Ledger(self.own.key)
        row = db.execute(_MAIN).fetchone()
        if row is None:
            main.is_intact = False
        else:
            main.read(row)
        return main

    def _add(self, main: Ledger, row: Row) -> None:
        owner = Ledger(self.own.key)
        owner.read(row)
        main.add(owner)
        main.last_event = max(main.last_event, owner.last_event)
