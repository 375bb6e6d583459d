"""Console sessions and tickets, as encrypted records in the table of planner state.

Encryption binds a record to its id, so a row that was changed, moved or added without the key of the store is not read.
The records of a user are erased with the user, and expired ones are pruned, like all records of that table.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec.structs import asdict, replace

from toolpost.contracts.callers import CallerSession, SignInTicket
from toolpost.contracts.principal import Principal
from toolpost.stores.encryption import readable_rows
from toolpost.stores.state import StateRecord

if TYPE_CHECKING:
    from toolpost.stores.encryption import RowCipher
    from toolpost.stores.state import StateTable

T = TypeVar("T", CallerSession, SignInTicket)
_Sessions: TypeAlias = list[CallerSession]  # The store's own `list` hides the builtin one.
_Rows: TypeAlias = list[tuple[str, bytes]]  # ids and encrypted records
_SESSION, _TICKET = "session", "ticket"
_USED = "used"
_REPORTED_S = 3600.0  # for so long after it expired, a session or ticket is reported as expired, not as unknown


class EncryptedSessionStore:
    """Implements `SessionStore` on any table."""

    def __init__(self, table: StateTable, cipher: RowCipher) -> None:
        self._table = table
        self._cipher = cipher

    async def add(self, session: CallerSession) -> None:
        await self._table.drop_expired((_SESSION, _TICKET), before=session.created_at - _REPORTED_S)
        await self._table.put(_SESSION, session.id, "", self._record(_SESSION, session))

    async def find(self, session_id: str) -> CallerSession | None:
        rows = [(session_id, body) for _, body in await self._table.all(_SESSION, session_id)]
        return next(iter(self._read_all(rows)), None)

    async def list(self, *, tenant: str, user: str | None = None) -> _Sessions:
        sessions = self._read_all([(key, body) for key, _, body in await self._table.of_kind(_SESSION)])
        found = [one for one in sessions if one.principal.tenant == tenant and user in (None, one.principal.user)]
        return sorted(found, key=lambda one: (one.created_at, one.id))

    async def use(self, session: CallerSession, *, at: float) -> None:
        used = replace(session, used_at=at)
        await self._table.replace(_SESSION, session.id, "", self._record(_SESSION, used))

    async def remove(self, session_id: str) -> None:
        await self._table.delete(_SESSION, [session_id])

    async def add_ticket(self, ticket: SignInTicket) -> None:
        await self._table.put(_TICKET, ticket.id, "", self._record(_TICKET, ticket))

    async def find_ticket(self, ticket_id: str) -> tuple[SignInTicket, bool] | None:
        rows = dict(await self._table.all(_TICKET, ticket_id))

        def read(body: bytes) -> SignInTicket:
            return _restore(SignInTicket, self._cipher.decrypt(body, "state", _TICKET, ticket_id, ""))

        bodies = [rows[""]] if "" in rows else []
        found = readable_rows(bodies, read, lambda _: f"sign-in ticket {ticket_id!r}")
        return (found[0], _USED in rows) if found else None

    async def use_ticket(self, ticket: SignInTicket) -> bool:
        return await self._table.add(_TICKET, ticket.id, _USED, self._record(_TICKET, ticket, _USED))

    def _record(self, kind: str, value: CallerSession | SignInTicket, item: str = "") -> StateRecord:
        data = asdict(value)
        data |= {"digest": b64encode(value.digest).decode(), "scopes": sorted(value.scopes)}
        body = self._cipher.encrypt(data, "state", kind, value.id, item)
        return StateRecord(body, str(value.principal), value.expires_at)

    def _read_all(self, rows: _Rows) -> _Sessions:
        """Return the sessions of rows; a row that cannot be decrypted is logged and skipped."""

        def read(row: tuple[str, bytes]) -> CallerSession:
            return _restore(CallerSession, self._cipher.decrypt(row[1], "state", _SESSION, row[0], ""))

        return readable_rows(rows, read, lambda row: f"console session {row[0]!r}")


def _restore(kind: type[T], data: dict[str, Any]) -> T:
    values: dict[str, Any] = data | {
        "principal": Principal(*data["principal"]),
        "scopes": frozenset(data["scopes"]),
        "answers": tuple(data["answers"]),
        "digest": b64decode(data["digest"]),
    }
    return kind(**values)
