"""The ledger of an event log: the number of its runs and the sum of their MACs.

The sum reveals a run that was removed, added or restored to an earlier state, and needs one row regardless of the
length of the log. Pruning subtracts runs from it. Sums of several processes are added.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolpost.contracts.errors import StoreError
from toolpost.stores.chain import DIGEST_BYTES, LogKey
from toolpost.stores.encryption import UNREADABLE, RowCipher

LEDGER_ROW = ("ledger", "1", "key")  # the name that the key of a log is encrypted to
_MODULUS = 1 << 8 * DIGEST_BYTES


class Ledger:
    """The number of runs and events of a log and the sum of the runs' MACs. Mutable: it changes with every event."""

    __slots__ = ("is_intact", "key", "last_event", "last_run", "runs", "total")

    def __init__(self, key: LogKey) -> None:
        self.key = key
        self.last_event = self.last_run = self.runs = self.total = 0
        self.is_intact = True

    def read(self, row: tuple[int, int, int, bytes, bytes]) -> None:
        """Read the row; a row that was tampered with keeps its invalid MAC, so `verify` continues to report it."""
        self.last_event, self.last_run, self.runs, total, mac = row
        self.total = int.from_bytes(total, "big")
        self.is_intact = mac == self._mac()

    def columns(self) -> tuple[int, int, int, bytes, bytes]:
        """Return the values of the row that `read` takes."""
        mac = self._mac() if self.is_intact else b""
        return self.last_event, self.last_run, self.runs, self.total.to_bytes(DIGEST_BYTES, "big"), mac

    def change(self, *, old: Sequence[bytes] = (), new: Sequence[bytes] = ()) -> None:
        """Replace MACs in the sum."""
        self.total = (self.total - _sum(old) + _sum(new)) % _MODULUS

    def add(self, other: Ledger) -> None:
        """Add the runs of another process."""
        self.runs += other.runs
        self.total = (self.total + other.total) % _MODULUS
        self.is_intact = self.is_intact and other.is_intact

    def find_breaks(self, macs: list[bytes]) -> list[str]:
        """Return the problems of the runs as a whole, given the MACs of the stored runs."""
        if not self.is_intact:
            return ["the ledger of the log was changed, so the expected number of runs is unknown"]
        if self.runs != len(macs):
            return [f"the log should contain {self.runs} runs and contains {len(macs)}: runs were removed or added"]
        if self.total != _sum(macs) % _MODULUS:
            return ["a run was replaced by another, or restored to an earlier state"]
        return []

    def _mac(self) -> bytes:
        return self.key.mac_fields("ledger", (self.last_event, self.last_run, self.runs, self.total))


def read_log_key(encrypted: bytes, cipher: RowCipher) -> LogKey | None:
    """Return the key of a log; None if it is new, or its encryption key is lost.

    The key of the log is random and encrypted with the key of the folder, so it survives a rotation of the latter.
    """
    if not encrypted:
        return None
    try:
        return LogKey(bytes.fromhex(cipher.decrypt(encrypted, *LEDGER_ROW)))
    except StoreError as error:
        if error.error_code != UNREADABLE:
            raise
        return None


def _sum(macs: Sequence[bytes]) -> int:
    try:
        return sum(map(int.from_bytes, macs))  # big-endian
    except TypeError:  # one was replaced by a value that is not a MAC, which the sum reveals
        unknown: list[object] = list(macs)
        return sum(int.from_bytes(mac) for mac in unknown if isinstance(mac, bytes))
