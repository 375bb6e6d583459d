"""The head of a run: where its sequence and chain go on, and how it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.contracts.events import EventCode, RunSummary
from toolpost.stores.chain import Fields, link_hash, link_ids

if TYPE_CHECKING:
    from toolpost.contracts.events import CallRef, RunEvent

FINISHED = frozenset({"completed", "failed"})

# By plain numbers: hashing an enum's member runs Python code, and this is looked up for every event.
_OPENING = frozenset({int(EventCode.TOOL_CALL_REQUESTED), int(EventCode.CALL_RESUMED)})
_TURNS: dict[int, str] = {
    int(EventCode.TOOL_CALL_REQUESTED): "running",
    int(EventCode.TOOL_CALL_STARTED): "running",
    int(EventCode.CALL_RESUMED): "running",
    int(EventCode.APPROVAL_REQUESTED): "paused",
    int(EventCode.CALL_PAUSED): "paused",
    int(EventCode.TOOL_CALL_COMPLETED): "completed",
    int(EventCode.TOOL_CALL_FAILED): "failed",
}


class RunHead:
    """A run as its last event left it. Mutable: it advances with every event."""

    __slots__ = (
        "_call",
        "_ids",
        "hash",
        "root_call",
        "run_id",
        "seq",
        "started_at",
        "status",
        "tenant",
        "tool_name",
        "updated_at",
        "user",
    )

    def __init__(
        self,
        run_id: str,
        tenant: str,
        user: str,
        tool_name: str,
        status: str,
        started_at: float,
        updated_at: float,
        seq: int,
        hash: bytes,
        root_call: str,
    ) -> None:
        self.run_id = run_id
        self.tenant = tenant
        self.user = user
        self.tool_name = tool_name
        self.status = status
        self.started_at = started_at
        self.updated_at = updated_at
        self.seq = seq
        self.hash = hash
        self.root_call = root_call
        self._call: CallRef | None = None
        self._ids = ""

    @classmethod
    def of_first(cls, call: CallRef, at: float) -> RunHead:
        """The head before a run's first event; a run of mere notices counts as finished."""
        user, tool_name = storable(call.user), storable(call.tool_name)
        return cls(call.run_id, call.tenant, user, tool_name, "completed", at, at, 0, b"", call.call_id)

    def advance(self, event: RunEvent, call: CallRef, payload: str) -> Fields:
        """Number and chain one more event; unchanged when an id of it cannot be encoded."""
        if call is not self._call:
            self._call, self._ids = call, link_ids(self.run_id, call.call_id, call.tenant)
        code, at, seq = int(event.code), float(event.at), self.seq + 1
        digest = link_hash(self.hash, self._ids, seq=seq, code=code, at=at, payload=payload)
        self.seq, self.hash, self.updated_at = seq, digest, at
        self.turn(code, call.call_id)
        return self.run_id, seq, code, at, call.call_id, call.tenant, payload, digest

    def turn(self, code: int, call_id: str) -> None:
        """Change the status. A run ends with the call that began it, not with a call nested in that one.

        After its end another call, or the answer to a question, may begin it anew.
        """
        turn = _TURNS.get(code)
        if turn is None:
            return
        if self.status in FINISHED:
            if code in _OPENING:
                self.root_call, self.status = call_id, turn
        elif turn not in FINISHED or call_id == self.root_call:
            self.status = turn

    def row(self) -> tuple[str, str, str, str, str, float, float, int, bytes, str]:
        """The head in the order of the table's columns."""
        return (
            self.run_id,
            self.tenant,
            self.user,
            self.tool_name,
            self.status,
            self.started_at,
            self.updated_at,
            self.seq,
            self.hash,
            self.root_call,
        )

    def summary(self) -> RunSummary:
        """The run at a glance."""
        return RunSummary(
            run_id=self.run_id,
            tenant=self.tenant,
            user=self.user,
            tool_name=self.tool_name,
            status=self.status,
            started_at=self.started_at,
            updated_at=self.updated_at,
            events=self.seq,
            call_id=self.root_call,
        )


def storable_call(call: CallRef) -> CallRef:
    """The call with ids that are valid UTF-8; the same object nearly always."""
    if (call.run_id + call.call_id + call.tenant).isascii():
        return call
    return call._replace(run_id=storable(call.run_id), call_id=storable(call.call_id), tenant=storable(call.tenant))


def storable(text: str) -> str:
    """The text with lone surrogates written out."""
    whole = str(text)  # a caller may have taken something else for an id
    return whole if whole.isascii() else whole.encode("utf-8", "backslashreplace").decode()
