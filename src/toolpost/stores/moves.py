"""Move a store to another database: all of it, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from toolpost.contracts.errors import StoreError
from toolpost.stores.registry import StoreOptions
from toolpost.stores.transfer import (
    NOT_EMPTY,
    LockedSnapshot,
    PortableBackend,
    Snapshot,
    copy_rows,
    count_rows,
)


class ConfiguredDatabase(NamedTuple):
    """A database with its backend."""

    backend: PortableBackend
    options: StoreOptions

    def describe(self) -> str:
        """Return the address, without a password."""
        return self.backend.describe(self.options)

    async def verify(self) -> list[str]:
        """Return the signs of tampering in the event log, and in rows that grant rights."""
        store = await self.backend.open(self.options)
        try:
            return await store.events.verify()
        finally:
            await store.close()


class Moved(NamedTuple):
    """The result of a move: the numbers of rows by table, and the problems that the log had before it."""

    rows: Mapping[str, int]
    problems: list[str]
    resumed: bool


async def move(source: ConfiguredDatabase, target: ConfiguredDatabase) -> Moved:
    """Copy all rows, verify the copy, and refuse all further use of the source.

    The source is locked until the end. If a step fails, the copy is deleted and the source stays in use. A move that
    was interrupted after the copy is finished by the next one.
    """
    problems = await source.verify()
    with source.backend.lock(source.options) as snapshot:
        rows, resumed = _copy(snapshot, target)
        try:
            found = await target.verify()
        except BaseException:
            target.backend.clear(target.options)
            raise
        if found != problems:
            target.backend.clear(target.options)
            raise StoreError(
                f"the copy at {target.describe()} does not verify as {source.describe()} does: "
                f"{'; '.join(found) or 'it has no problems'}. It was deleted, and the source is unchanged; "
                "run the move again"
            )
        snapshot.freeze(target.describe())
    return Moved(rows, problems, resumed)


def _copy(snapshot: LockedSnapshot, target: ConfiguredDatabase) -> tuple[dict[str, int], bool]:
    """Copy all rows; return their numbers, and whether an interrupted move had copied them."""
    expected = count_rows(snapshot)
    try:
        with target.backend.fill(target.options, schema=snapshot.schema) as empty:
            rows = copy_rows(snapshot, empty)
            empty.write_log(snapshot.log, position=snapshot.log.last_event)
            if rows != expected:
                raise StoreError(f"the copy at {target.describe()} is incomplete; nothing was moved")  # noqa: TRY301 - rolls back
    except StoreError as error:
        if error.error_code != NOT_EMPTY:
            raise
        with target.backend.snapshot(target.options) as copied:
            if not _is_copy(copied, snapshot, expected):
                raise
        return expected, True
    return rows, False


def _is_copy(copied: Snapshot, snapshot: Snapshot, expected: Mapping[str, int]) -> bool:
    """Return whether a database has the log and the numbers of rows of another."""
    logs = [(log.key, log.runs, log.total, log.is_intact) for log in (copied.log, snapshot.log)]
    return logs[0] == logs[1] and count_rows(copied) == expected
