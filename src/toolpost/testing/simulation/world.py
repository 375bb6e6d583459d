"""The world outside of the simulated processes: jobs and their plans, replies, and a ledger of real effects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, NamedTuple

from toolpost.contracts.outcomes import Failed, Outcome

TENANT = "acme"
USERS = (f"{TENANT}:ann", f"{TENANT}:bob")
BOSS = f"{TENANT}:boss"
Decision = Literal["approve", "change", "deny", "ignore", "late"]
# The tools of the workload, with the share of each.
SHARES: Mapping[str, int] = {
    "look": 3,
    "put": 5,
    "charge": 5,
    "pay": 6,
    "narrow": 2,
    "wipe": 4,
    "ask": 1,
    "pack": 2,
    "order": 2,
    "bundle": 1,
}
DECISIONS: Mapping[Decision, int] = {"approve": 6, "change": 2, "deny": 2, "ignore": 1, "late": 1}
_CHANGED_BY = 1000


class Effect(NamedTuple):
    """One effect in the real world: a payment, a deleted file."""

    job: str
    tool: str
    key: str  # the idempotency key that the tool received
    amount: int
    revision: int
    call_id: str


class EffectLedger:
    """The effects of all tools, outside of every process; a crash removes none."""

    def __init__(self) -> None:
        self.effects: defaultdict[str, list[Effect]] = defaultdict(list)  # by job
        self.runs: defaultdict[str, int] = defaultdict(int)  # how often a tool began for a job
        self._by_key: dict[str, Effect] = {}

    def add(self, effect: Effect) -> None:
        """Record an effect, as services without idempotency keys do."""
        self.effects[effect.job].append(effect)

    def add_once(self, effect: Effect) -> None:
        """Record an effect unless its key was used, as services with idempotency keys do."""
        if effect.key not in self._by_key:
            self._by_key[effect.key] = effect
            self.add(effect)

    def count(self, job: str) -> int:
        """Return the number of effects of a job."""
        return len(self.effects.get(job, ()))


class SimulatedReply(NamedTuple):
    """A reply to a client, None if the connection broke first; `asked_at` and `at` are virtual times."""

    asked_at: float
    at: float
    outcome: Outcome | None

    @property
    def code(self) -> str:
        """The error code of a failure, or else the status."""
        outcome = self.outcome
        if outcome is None:
            return "disconnected"
        return outcome.error.error_code if isinstance(outcome, Failed) else outcome.status


@dataclass(slots=True, kw_only=True)
class SimulatedJob:
    """One piece of work of a client: a call, its repetitions, and the decisions about it. Mutable: its replies."""

    id: str
    tool: str
    user: str
    key: str | None
    amount: int
    decision: Decision
    sends: int
    starts_at: float
    cancels_after: float | None
    hangs_up_after: float | None
    replies: list[SimulatedReply] = field(default_factory=list[SimulatedReply])
    is_cancelled: bool = False
    is_done: bool = False

    @property
    def run_id(self) -> str:
        """The run of all calls of the job."""
        return f"run-{self.id}"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of its calls."""
        return {"job": self.id, "amount": self.amount}

    @property
    def changed_amount(self) -> int:
        """The amount that an approver writes in place of the requested one."""
        return self.amount + _CHANGED_BY

    @classmethod
    def plan(cls, number: int, random: Random, *, starts_at: float) -> SimulatedJob:
        """Choose the plan of a job."""
        (tool,) = random.choices(list(SHARES), list(SHARES.values()))
        has_key = random.random() < 0.7
        (decision,) = random.choices(list(DECISIONS), list(DECISIONS.values()))
        return cls(
            id=f"j{number}",
            tool=tool,
            user=random.choice(USERS),
            key=f"key-{number}" if has_key else None,
            amount=random.randrange(100),
            decision=decision,
            sends=random.choice((1, 1, 1, 2, 3)) if has_key else 1,
            starts_at=starts_at,
            cancels_after=random.random() * 3.0 if random.random() < 0.05 else None,
            hangs_up_after=random.random() * 0.5 if random.random() < 0.03 else None,
        )


def root_job(job: str) -> str:
    """Return the job of a client that the job of a nested call or a step belongs to."""
    return job.partition(".")[0]
