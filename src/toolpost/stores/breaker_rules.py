"""State changes of a circuit breaker that several processes share; stores apply them in one atomic step."""

from __future__ import annotations

from typing import NamedTuple

from toolpost.contracts.limits import BreakerStatus

FORGET_BREAKER_S = 3600.0  # a breaker that has not changed for so long begins again without failures


class BreakerRecord(NamedTuple):
    """Consecutive failures, when the breaker opened, and which process probes until when, on the store's clock."""

    failures: int = 0
    opened_at: float | None = None
    prober: str | None = None
    probe_until: float = 0.0
    failing_since: float = 0.0

    def status(self, name: str, *, now: float) -> BreakerStatus:
        """Return the status at this time."""
        return BreakerStatus(name, self.failures, None if self.opened_at is None else max(0.0, now - self.opened_at))

    def failed(self, owner: str, *, threshold: int, streak: int, settle_s: float, now: float) -> BreakerRecord:
        """Return the record after a failure of a process.

        A process that has not heard of the failures of others for up to `settle_s` reports no successes.
        """
        failures, since = self.failures + 1, self.failing_since if self.failures else now
        is_probe = self.prober == owner and now < self.probe_until
        is_of_all = failures >= threshold and now - since >= settle_s
        if is_probe or streak >= threshold or is_of_all:
            return BreakerRecord(failures, now, failing_since=since)
        return self._replace(failures=failures, failing_since=since)

    def probed(self, owner: str, *, cooldown_s: float, now: float) -> BreakerRecord | None:
        """Return the record with this process as the one that probes; None if it must not."""
        if self.opened_at is None or now - self.opened_at < cooldown_s:
            return None
        if self.prober is not None and now < self.probe_until:
            return None
        return self._replace(prober=owner, probe_until=now + cooldown_s)

    def without_probe(self, owner: str) -> BreakerRecord:
        """Return the record after a process has abandoned its probe."""
        return self._replace(prober=None) if self.prober == owner else self
