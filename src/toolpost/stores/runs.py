"""The head of a run: where its sequence and chain go on, and how it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.contracts.events import CallRef, EventCode, RunSummary
from toolpost.contracts.makers import maker
from toolpost.stores.chain import EventRow, join_ids, link, read_facts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolpost.contracts.events import RunEvent
    from toolpost.stores.chain import LogKey

FINISHED = frozenset({"completed", "failed"})

# By plain numbers: hashing an enum's member runs Python code, and this is looked up for every event.
_REQUESTED = int(EventCode.TOOL_CALL_REQUESTED)
_OPENING = frozenset({_REQUESTED, int(EventCode.CALL_RESUMED)})
_TURNS: dict[int, str] = {
    _REQUESTED: "running",
    int(EventCode.TOOL_CALL_STARTED): "running",
    int(EventCode.CALL_RESUMED): "running",
    int(EventCode.APPROVAL_REQUESTED): "paused",
    int(EventCode.CALL_PAUSED): "paused",
    int(EventCode.TOOL_CALL_COMPLETED): "completed",
    int(EventCode.TOOL_CALL_FAILED): "failed",
}
_new_row = maker(EventRow)


class RunHead:
    """A run as its last event left it. Mutable: it advances with every event.

    `nr` counts the runs of a log in the order in which they began; `open_calls` are those that were requested and have
    not ended. `seal` is a MAC over all of it, empty where the stored record was found changed.
    """

    __slots__ = (
        "_call",
        "_ids",
        "hash",
        "is_damaged",
        "nr",
        "open_calls",
        "root_call",
        "run_id",
        "seal",
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
        nr: int,
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
        open_calls: int,
    ) -> None:
        self.nr = nr
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
        self.open_calls = open_calls
        self.seal = b""
        self.is_damaged = False
        self._call: CallRef | None = None
        self._ids = ""

    @classmethod
    def of_first(cls, call: CallRef, at: float, nr: int = 0) -> RunHead:
        """The head before a run's first event; a run of mere notices counts as finished."""
        user, tool_name = storable(call.user), storable(call.tool_name)
        return cls(nr, call.run_id, call.tenant, user, tool_name, "completed", at, at, 0, b"", call.call_id, 0)

    @classmethod
    def of_row(cls, row: tuple[Any, ...]) -> RunHead:
        """The head that a row of the table stands for."""
        *facts, seal = row
        head = cls(*facts)
        head.seal = seal
        return head

    def advance(self, event: RunEvent, call: CallRef, payload: str, *, id: int, key: LogKey) -> EventRow:
        """Number and chain one more event; unchanged when an id of it cannot be encoded."""
        if call is not self._call:
            self._call, self._ids = call, join_ids(self.run_id, call.call_id, call.tenant, call.user)
        code, at, seq = int(event.code), float(event.at), self.seq + 1
        digest = key.digest(self._ids, id=id, seq=seq, code=code, at=at, payload=payload)
        self.seq, self.hash, self.updated_at = seq, link(self.hash, digest), at
        self.turn(code, call.call_id)
        return _new_row(
            (id, self.run_id, seq, code, at, call.call_id, call.tenant, call.user, payload, self.hash, None)
        )

    def sealed(self, key: LogKey) -> bytes:
        """The seal that this head should have."""
        return key.seal("run", *self.facts())

    def turn(self, code: int, call_id: str) -> None:
        """Change the status. A run ends with the call that began it, not with a call nested in that one.

        After its end another call, or the answer to a question, may begin it anew.
        """
        turn = _TURNS.get(code)
        if turn is None:
            return
        if code == _REQUESTED:
            self.open_calls += 1
        elif turn in FINISHED and self.open_calls:
            self.open_calls -= 1
        if self.status in FINISHED:
            if code in _OPENING:
                self.root_call, self.status = call_id, turn
        elif turn not in FINISHED or call_id == self.root_call:
            self.status = turn

    def facts(self) -> tuple[int, str, str, str, str, str, float, float, int, bytes, str, int]:
        """The head in the order of the table's columns, but for its seal."""
        return (
            self.nr,
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
            self.open_calls,
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
    if (call.run_id + call.call_id + call.tenant + call.user).isascii():
        return call
    return call._replace(
        run_id=storable(call.run_id),
        call_id=storable(call.call_id),
        tenant=storable(call.tenant),
        user=storable(call.user),
    )


def storable(text: str) -> str:
    """The text with lone surrogates written out."""
    whole = str(text)  # a caller may have taken something else for an id
    return whole if whole.isascii() else whole.encode("utf-8", "backslashreplace").decode()


def find_open_calls(rows: Iterable[EventRow]) -> list[RunSummary]:
    """The calls of a run that were requested and have not ended, the innermost first, each like a run of its own."""
    found: dict[str, RunHead] = {}
    for row in rows:
        call = CallRef(
            row.run_id, row.call_id, read_facts(row.payload).get("tool_name", ""), row.tenant, row.user, "", dict
        )
        head = found.setdefault(row.call_id, RunHead.of_first(call, row.at))
        head.seq, head.updated_at = head.seq + 1, row.at
        head.turn(row.code, row.call_id)
    return [head.summary() for head in reversed(found.values()) if head.open_calls]
