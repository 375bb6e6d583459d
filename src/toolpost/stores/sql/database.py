"""Protocols of a database for the shared parts of a store: transactions, statements, locks, liveness of processes.

Statements use the SQL that SQLite and PostgreSQL share: named parameters (`:name`), `"user"` in quotes, because it is a
word of PostgreSQL, `= ANY(:names)` for a list, `strpos` to find a text, and `FOR UPDATE` for rows that the transaction
changes next. Each database translates them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from toolpost.contracts.clock import Clock
from toolpost.stores.chain import LogKey
from toolpost.stores.encryption import RowCipher
from toolpost.stores.run_chains import RunName

T = TypeVar("T")
NO_VALUES: Mapping[str, Any] = {}


class Result(Protocol):
    """The rows that a statement returned, and the number of rows that it changed."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Statements(Protocol):
    """A connection that runs shared statements."""

    def execute(self, sql: str, values: Mapping[str, Any] = NO_VALUES) -> Result:
        """Run one shared statement."""
        ...


class SQLConnection(Statements, Protocol):
    """A connection in a transaction of the writer, or for queries.

    Records that a process works on name it as their owner. On one machine an owner holds a file lock: the kernel
    releases it when the process ends, and never before. Between machines nothing reports the end of a process, so an
    owner has a lease that it renews: a process that was stopped for longer has lost its lease, and with it the right to
    write.
    """

    def lock(self, name: str) -> None:
        """Wait until no other transaction has locked this name, and lock it until the end of this one."""
        ...

    def ended(self, owner_ids: Iterable[str]) -> list[str]:
        """Return the owners whose processes have ended; from this transaction on, none of them can write."""
        ...

    def publish(self) -> None:
        """Wake the tasks of other processes that wait for a pending action, when the transaction is committed."""
        ...

    def secure_deletes(self) -> AbstractContextManager[None]:
        """Overwrite values that are deleted within the context, if the database can."""
        ...

    def save_heads(self) -> None:
        """Write the heads of runs that this transaction has changed, so that statements see them."""
        ...

    def remove_runs(self, removed: Iterable[tuple[RunName, bytes]]) -> None:
        """Remove deleted runs, given with their MACs, from the ledger."""
        ...

    def rename_user(self, runs: Iterable[RunName], user: str) -> None:
        """Change the user of runs."""
        ...


class SharedDatabase(Protocol):
    """The database of a store, and the services of its parts.

    `key` is that of the event log. `owner_id` is the ID of this process, the owner of its leases.
    """

    @property
    def cipher(self) -> RowCipher: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def key(self) -> LogKey: ...
    @property
    def owner_id(self) -> str: ...

    async def read(self, work: Callable[[SQLConnection], T]) -> T:
        """Run queries."""
        ...

    async def write(self, work: Callable[[SQLConnection], T]) -> T:
        """Run a function in a transaction; return its result once it is durable."""
        ...


def where(**values: object) -> str:
    """Return a condition for each value that is not None: a column of its name equals the parameter of its name."""
    return "".join(f' AND "{name}" = :{name}' for name, value in values.items() if value is not None)
