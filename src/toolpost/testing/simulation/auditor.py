"""Checks of the promises of Toolpost against the records of a simulated world."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from toolpost.contracts.events import EventCode, StoredEvent
from toolpost.contracts.outcomes import Completed, Failed
from toolpost.contracts.questions import PendingAction
from toolpost.testing.simulation.workload import STEPS
from toolpost.testing.simulation.world import EffectLedger, SimulatedJob

_ENDS = frozenset({EventCode.TOOL_CALL_COMPLETED, EventCode.TOOL_CALL_FAILED})
_NOTHING_RAN = frozenset({"approval_denied", "question_expired", "not_executed"})
# The client has to ask again.
_NOT_YET = frozenset({"in_progress", "outcome_unknown", "store_unavailable", "taken_over"})
# Replies to a repeated call after its key has an outcome: that one, or that this repetition did not get it.
_REPEATED = frozenset({"completed", "disconnected", "store_unavailable", "taken_over", "cancelled", "timeout"})
_UNSAFE = frozenset({"pay", "narrow", "wipe", "ask", "pack"})


class Evidence(NamedTuple):
    """The records of a world: its jobs and their effects, all events, questions, and the statements of the store.

    `unknown` counts the jobs whose outcome was asked about, `crowds` are the processes that ran too many calls at once,
    and `revision_of` returns the revision of the tool in a question.
    """

    jobs: Sequence[SimulatedJob]
    ledger: EffectLedger
    events: Sequence[StoredEvent]
    followed: Sequence[StoredEvent]
    actions: Sequence[PendingAction]
    problems: Sequence[str]
    unknown: int
    crowds: Sequence[str]
    disk_was_full: bool
    has_stalls: bool
    revision_of: Callable[[PendingAction], int | None]

    @property
    def calls(self) -> int:
        """The number of calls, with nested and repeated ones."""
        return sum(event.code == EventCode.TOOL_CALL_REQUESTED for event in self.events)


Promise: TypeAlias = Callable[[Evidence], Iterator[str]]


def audit(evidence: Evidence) -> list[str]:
    """Return every broken promise, with its name."""
    return [f"{name}: {broken}" for name, promise in PROMISES.items() for broken in promise(evidence)]


def _jobs_end(evidence: Evidence) -> Iterator[str]:
    for job in evidence.jobs:
        if not job.is_done:
            yield f"{job.id} {job.tool}: no outcome; replies {[reply.code for reply in job.replies[-3:]]}"


def _calls_end_once(evidence: Evidence) -> Iterator[str]:
    """Every request of a call has exactly one end, unless the call waits for a person.

    A nested call that was interrupted has an end, and may be requested again when its parent call runs again. If a
    process stalls and another one of the same run is killed, a call without an intent may also end as interrupted.
    """
    requests = Counter(event.call_id for event in evidence.events if event.code == EventCode.TOOL_CALL_REQUESTED)
    ends = Counter(event.call_id for event in evidence.events if event.code in _ENDS)
    waiting = {action.call_id for action in evidence.actions if action.status == "open"}
    if evidence.has_stalls:
        ends -= Counter(_interrupted_again(evidence))
    for call_id, requested in requests.items():
        expected = requested - (call_id in waiting)
        if ends[call_id] != expected:
            yield f"{call_id}: {ends[call_id]} ends instead of {expected}"


def _interrupted_again(evidence: Evidence) -> set[str]:
    """Return the calls that ended as interrupted before their tools ended, without an effect."""
    interrupted, again = set[str](), set[str]()
    for event in evidence.events:
        if event.code not in _ENDS:
            continue
        if event.call_id in interrupted:
            again.add(event.call_id)
        elif event.payload.get("error_code") == "interrupted":
            interrupted.add(event.call_id)
    return again - {effect.call_id for effects in evidence.ledger.effects.values() for effect in effects}


def _log_is_whole(evidence: Evidence) -> Iterator[str]:
    """The chains verify, and the events of each run are numbered without gaps."""
    yield from evidence.problems
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for event in evidence.events:
        numbers[event.run_id].append(event.seq)
    for run_id, found in numbers.items():
        if found != list(range(1, len(found) + 1)):
            yield f"{run_id}: events {found}"


def _followers_miss_nothing(evidence: Evidence) -> Iterator[str]:
    seen, whole = [event.id for event in evidence.followed], [event.id for event in evidence.events]
    if seen != whole:
        missed, extra = set(whole) - set(seen), set(seen) - set(whole)
        yield f"missed {sorted(missed)[:5]}, saw {sorted(extra)[:5]} that do not exist, of {len(whole)}"


def _unsafe_runs_once(evidence: Evidence) -> Iterator[str]:
    for job, effects in evidence.ledger.effects.items():
        if effects[0].tool in _UNSAFE and len(effects) > 1:
            yield f"{job} {effects[0].tool}: {len(effects)} effects"


def _keys_deduplicate(evidence: Evidence) -> Iterator[str]:
    """A keyed tool receives the same key in every run of its job."""
    for job, effects in evidence.ledger.effects.items():
        if effects[0].tool == "charge" and len(effects) > 1:
            yield f"{job} charge: effects for the keys {[effect.key for effect in effects]}"


def _completed_happened(evidence: Evidence) -> Iterator[str]:
    for job in evidence.jobs:
        if not any(isinstance(reply.outcome, Completed) for reply in job.replies):
            continue
        for effect in _effects_of(job):
            if not evidence.ledger.count(effect):
                yield f"{effect} {job.tool}: completed without an effect"


def _effects_of(job: SimulatedJob) -> tuple[str, ...]:
    """Return the ledger entries that a completed job has."""
    if job.tool == "look":
        return ()
    parts = {"pack": STEPS, "order": ("pay", "put"), "bundle": ("charge", "wipe")}.get(job.tool)
    return (job.id,) if parts is None else tuple(f"{job.id}.{part}" for part in parts)


def _failed_did_not_happen(evidence: Evidence) -> Iterator[str]:
    """A failure that says that nothing ran, or that the call may be repeated, is true."""
    for job in evidence.jobs:
        last = job.replies[-1] if job.replies else None
        if last is None or not isinstance(last.outcome, Failed) or job.tool not in _UNSAFE:
            continue
        error, effects = last.outcome.error, evidence.ledger.effects.get(job.id, [])
        count = sum(
            effect.call_id == last.outcome.call_id for effect in effects
        )  # not those of the first call of a key
        if count and (last.code in _NOTHING_RAN or (error.is_retryable and last.code not in _NOT_YET)):
            yield f"{job.id} {job.tool}: {last.code}, retryable {error.is_retryable}, and {count} effects"


def _unknown_is_asked(evidence: Evidence) -> Iterator[str]:
    """An interrupted call that is reported as safe to repeat had no unsafe effect."""
    interrupted = {
        event.call_id
        for event in evidence.events
        if event.code == EventCode.TOOL_CALL_FAILED and event.payload.get("error_code") == "interrupted"
    }
    for effects in evidence.ledger.effects.values():
        for effect in effects:
            if effect.tool in _UNSAFE and effect.call_id in interrupted:
                yield f"{effect.job} {effect.tool}: reported as interrupted and safe to repeat, but it had an effect"


def _refused_never_runs(evidence: Evidence) -> Iterator[str]:
    """A call whose question was denied, expired or cancelled never runs."""
    allowed = {
        str(action.arguments["job"])
        for action in evidence.actions
        if action.question.kind == "approval" and action.answer is not None and action.answer.decision == "approve"
    }
    for job, effects in evidence.ledger.effects.items():
        if effects[0].tool == "wipe" and job not in allowed:
            yield f"{job} wipe: it ran without an approval"
    for action in evidence.actions:
        if action.answered_at is not None and action.answered_at >= action.expires_at:
            yield f"{action.arguments['job']} {action.tool_name}: answered after it had expired"


def _approved_runs_as_approved(evidence: Evidence) -> Iterator[str]:
    """A call runs with the arguments and the definition of one of its approvals."""
    approved: defaultdict[str, set[tuple[int, int | None]]] = defaultdict(set)
    for action in evidence.actions:
        answer = action.answer
        if action.question.kind == "approval" and answer is not None and answer.decision == "approve":
            changes = answer.changes or ()
            amount = changes[0]["value"] if changes else action.arguments["amount"]
            approved[str(action.arguments["job"])].add((amount, evidence.revision_of(action)))
    for job, effects in evidence.ledger.effects.items():
        for effect in effects:
            if effect.tool == "wipe" and (effect.amount, effect.revision) not in approved[job]:
                yield f"{job}: ran with {effect.amount} by revision {effect.revision}; approved were {approved[job]}"


def _keys_have_one_outcome(evidence: Evidence) -> Iterator[str]:
    """All replies of one key that are outcomes of its call are equal.

    If the outcome could not be written before a crash, it may be lost: then a person confirms an unsafe call, and
    others run again. The same applies to a call of a process that stalled, which still replies when it wakes.
    """
    interrupted = _interrupted_calls(evidence) if evidence.has_stalls else set[str]()
    for job in evidence.jobs:
        if job.key is None or evidence.disk_was_full:
            continue
        done = [(reply.at, reply.outcome) for reply in job.replies if isinstance(reply.outcome, Completed)]
        if any(outcome.call_id in interrupted for _, outcome in done):
            continue
        if len({(outcome.call_id, str(outcome.content)) for _, outcome in done}) > 1:
            yield f"{job.id} {job.tool}: different results for one key"
        first = min((at for at, _ in done), default=None)
        for reply in job.replies:
            if first is not None and reply.asked_at > first and reply.code not in _REPEATED:
                yield f"{job.id} {job.tool}: {reply.code} after it had completed"


def _interrupted_calls(evidence: Evidence) -> set[str]:
    """Return the calls that another process has ended, or asked about."""
    ended = {event.call_id for event in evidence.events if event.payload.get("error_code") == "interrupted"}
    return ended | {action.call_id for action in evidence.actions if action.question.reason == "outcome_unknown"}


def _nobody_waits(evidence: Evidence) -> Iterator[str]:
    """No question stays claimed, and none stays open after its expiry."""
    for action in evidence.actions:
        if action.status in ("open", "claimed"):
            yield f"{action.id} {action.arguments['job']} {action.tool_name}: still {action.status}"


def _limits_hold(evidence: Evidence) -> Iterator[str]:
    for process in evidence.crowds:
        yield f"more calls of narrow ran concurrently in all processes than its limit; the last call began in {process}"


PROMISES: Mapping[str, Promise] = {
    "every job ends": _jobs_end,
    "every call ends once": _calls_end_once,
    "the log is whole": _log_is_whole,
    "followers miss nothing": _followers_miss_nothing,
    "unsafe calls run once": _unsafe_runs_once,
    "keyed calls keep their key": _keys_deduplicate,
    "completed calls happened": _completed_happened,
    "failed calls did not happen": _failed_did_not_happen,
    "unknown outcomes are asked about": _unknown_is_asked,
    "refused calls never run": _refused_never_runs,
    "approved calls run as approved": _approved_runs_as_approved,
    "one key has one outcome": _keys_have_one_outcome,
    "no question is forgotten": _nobody_waits,
    "limits hold": _limits_hold,
}
