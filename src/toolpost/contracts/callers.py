"""Callers of the gateway, their scopes and their keys."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from msgspec import Struct

from toolpost.contracts.errors import ToolError
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.contracts.records import represent

CallerScope = Literal["call", "answer", "admin", "observe"]
SCOPES: tuple[CallerScope, ...] = ("call", "answer", "admin", "observe")
"""To call tools; to answer pending actions; to change sources and to export the event log; to read only metrics."""
OBSERVE: frozenset[CallerScope] = frozenset({"observe"})
OWN_DATA: frozenset[CallerScope] = frozenset({"call", "observe"})
"""Scopes that do not permit access to the data of other users of the tenant."""
KEY_PREFIX = "tpk_"
"""The prefix of a key; its id and its secret follow, separated by an underscore."""
CALLER_KEY_RUN = "caller_keys"
"""The run of each tenant with the events of its keys."""
OPERATOR_ID = "operator"
KEY_ID = "key:"
"""The prefix of the id of a caller with a key; no other id has it."""
SESSION_PREFIX = "tps_"
"""The prefix of the bearer of a console session; its id and its secret follow, separated by an underscore."""
TICKET_PREFIX = "tpt_"
"""The prefix of a ticket, which opens one console session."""
SESSION_ID = "session:"
"""The prefix of the id of a caller with a console session; no other id has it."""
CALLER_SESSION_RUN = "caller_sessions"
"""The run of each tenant with the events of its console sessions."""


class Caller(NamedTuple):
    """The sender of a request, its principal and its scopes; `answers` are patterns of the tools it may answer for.

    `id` identifies the caller and contains no secret: `operator`, `key:ID`, or the issuer and subject of a token. With
    `person`, a person uses the credential: that of an agent never answers. With `interactive`, a person uses the MCP
    client that makes the calls, and may answer questions of tools and servers there. `grants` are the scopes of a
    console session that the caller can open, and `expires_at` ends it; an agent's credential grants nothing.
    `credential` is the id of the caller who opened this session.
    """

    id: str
    principal: Principal
    scopes: frozenset[CallerScope]
    answers: tuple[str, ...] = ("*",)
    person: bool = True
    interactive: bool = False
    grants: frozenset[CallerScope] = frozenset()
    expires_at: float | None = None
    credential: str = ""

    @property
    def is_operator(self) -> bool:
        """Whether the caller is the operator: the token of the data folder, or an `admin` key of the local tenant.

        A console session is the operator's if it was opened with one of these.
        """
        credential = self.credential or self.id
        is_admin = credential.startswith(KEY_ID) and "admin" in self.scopes and self.principal.tenant == LOCAL_TENANT
        return credential == OPERATOR_ID or is_admin

    @property
    def sees_gateway(self) -> bool:
        """Whether the caller sees counts of all tenants: the operator, monitoring, and users of the local tenant."""
        return self.is_operator or "observe" in self.scopes or self.principal.tenant == LOCAL_TENANT

    @property
    def has_operator_token(self) -> bool:
        """Whether the caller has the token of the data folder, or a console session that was opened with it."""
        return OPERATOR_ID in (self.id, self.credential)

    @property
    def is_session(self) -> bool:
        """Whether the bearer is a console session, which a person opened."""
        return self.id.startswith(SESSION_ID)

    def may_answer(self, tool_name: str) -> bool:
        """Return whether this caller may answer questions about a tool."""
        return "answer" in self.scopes and any(fnmatchcase(tool_name, pattern) for pattern in self.answers)


class CallerKey(Struct, frozen=True, kw_only=True):
    """A stored key of a caller, with only a digest of its secret.

    With `person`, the key only opens console sessions, which have its scopes.
    """

    id: str
    name: str
    principal: Principal
    scopes: frozenset[CallerScope]
    digest: bytes
    created_at: float
    created_by: str
    expires_at: float | None = None
    interactive: bool = False
    person: bool = False

    def __repr__(self) -> str:
        return represent(self, without=("digest",))

    def to_dict(self) -> dict[str, object]:
        """Return the key as JSON data, without its digest."""
        return {
            "id": self.id,
            "name": self.name,
            "user": str(self.principal),
            "scopes": [scope for scope in SCOPES if scope in self.scopes],
            "created_at": self.created_at,
            "created_by": self.created_by,
            "expires_at": self.expires_at,
            "interactive": self.interactive,
            "person": self.person,
        }


class CallerSession(Struct, frozen=True, kw_only=True):
    """A console session of a person, with only a digest of its secret.

    `credential` is the id of the caller who opened it. It ends at `expires_at`, or earlier if it is not used. A session
    with a `gateway` ends with that gateway.
    """

    id: str
    principal: Principal
    scopes: frozenset[CallerScope]
    answers: tuple[str, ...]
    digest: bytes
    credential: str
    created_at: float
    used_at: float
    expires_at: float
    gateway: str = ""

    def __repr__(self) -> str:
        return represent(self, without=("digest",))


class SignInTicket(Struct, frozen=True, kw_only=True):
    """A ticket that opens one console session, with only a digest of its secret.

    The session is that of the caller with the id `credential`, and ends at `session_expires_at` at the latest.
    """

    id: str
    principal: Principal
    scopes: frozenset[CallerScope]
    answers: tuple[str, ...]
    digest: bytes
    credential: str
    expires_at: float
    session_expires_at: float | None = None

    def __repr__(self) -> str:
        return represent(self, without=("digest",))


def check_key_scopes(scopes: Collection[CallerScope], *, interactive: bool = False, person: bool = False) -> None:
    """Raise ToolError for scopes that would let an agent approve its own calls."""
    if interactive and "call" not in scopes:
        raise ToolError(
            "an interactive key is for an MCP client, which calls: give it the scope call", code="key_scopes"
        )
    if interactive and person:
        raise ToolError(
            "a key is for an MCP client (interactive) or for the console (person), not for both", code="key_scopes"
        )
    if not scopes:
        raise ToolError("a key needs a scope: call, answer, admin or observe", code="key_scopes")
    if "observe" in scopes and (len(scopes) > 1 or person):
        raise ToolError(
            "a key with the scope observe is for a monitoring system and can do nothing else: give it no other scope, "
            "and create a second key for a person or an agent",
            code="key_scopes",
        )
    if "call" in scopes and len(scopes) > 1 and not person:
        raise ToolError(
            "a key that can call is an agent's, and an agent never answers for a person nor changes the gateway; "
            "create a second key with the scopes answer or admin, or a key with which a person opens console sessions",
            code="key_scopes",
        )
