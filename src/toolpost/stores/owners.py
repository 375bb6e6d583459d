"""Owners: the processes that have a store open, each of which owns the records that it works on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

Connection_contra = TypeVar("Connection_contra", contravariant=True)


class Owners(Protocol[Connection_contra]):
    """The owner of this process, and whether other owners have ended.

    On one machine an owner holds a file lock: the kernel releases it when the process ends, and never before. Between
    machines nothing tells the end of a process, so an owner has a lease that it renews: a process that was stopped for
    longer has lost its lease, and with it the right to write. The connection is the one of the current transaction.
    """

    @property
    def owner_id(self) -> str:
        """The owner of records that this process writes now."""
        ...

    def alive(self, db: Connection_contra, owner_id: str) -> bool:
        """Return whether an owner may still write; true if that cannot be determined."""
        ...

    def ended(self, db: Connection_contra, owner_ids: Iterable[str]) -> list[str]:
        """Return the owners that have ended; from this transaction on, none of them can write."""
        ...

    def sweep(self, db: Connection_contra) -> None:
        """Delete what owners that have ended left."""
        ...
