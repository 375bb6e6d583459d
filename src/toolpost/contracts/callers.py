"""Callers of the gateway, their scopes and their keys."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from msgspec import Struct

from toolpost.contracts.errors import ToolError
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.contracts.records import represent

CallerScope = Literal["call", "answer", "admin"]
SCOPES: tuple[CallerScope, ...] = ("call", "answer", "admin")
"""To call tools; to answer pending actions; to change sources and to export the event log."""
KEY_PREFIX = "tpk_"
"""The prefix of a key; its id and its secret follow, separated by an underscore."""
CALLER_KEY_RUN = "caller_keys"
"""The run of each tenant with the events of its keys."""
OPERATOR_ID = "operator"
KEY_ID = "key:"
"""The prefix of the id of a caller with a key; no other id has it."""


class Caller(NamedTuple):
    """The sender of a request, its principal and its scopes; `answers` are patterns of the tools it may answer for.

    `id` identifies the caller and contains no secret: `operator`, `key:ID`, or the issuer and subject of a token. With
    `person`, a person uses the credential: that of an agent never answers. With `interactive`, a person uses the MCP
    client that makes the calls, and may answer questions of tools and servers there.
    """

    id: str
    principal: Principal
    scopes: frozenset[CallerScope]
    answers: tuple[str, ...] = ("*",)
    person: bool = True
    interactive: bool = False

    @property
    def is_operator(self) -> bool:
        """Whether the caller is the operator: the token of the data folder, or an `admin` key of the local tenant."""
        is_admin = self.id.startswith(KEY_ID) and "admin" in self.scopes and self.principal.tenant == LOCAL_TENANT
        return self.id == OPERATOR_ID or is_admin

    def may_answer(self, tool_name: str) -> bool:
        """Return whether this caller may answer questions about a tool."""
        return "answer" in self.scopes and any(fnmatchcase(tool_name, pattern) for pattern in self.answers)


class CallerKey(Struct, frozen=True, kw_only=True):
    """A stored key of a caller, with only a digest of its secret."""

    id: str
    name: str
    principal: Principal
    scopes: frozenset[CallerScope]
    digest: bytes
    created_at: float
    created_by: str
    expires_at: float | None = None
    interactive: bool = False

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
        }


def check_key_scopes(scopes: Collection[CallerScope], *, interactive: bool = False) -> None:
    """Raise ToolError for scopes that would let an agent approve its own calls."""
    if interactive and "call" not in scopes:
        raise ToolError(
            "an interactive key is for an MCP client, which calls: give it the scope call", code="key_scopes"
        )
    if not scopes:
        raise ToolError("a key needs a scope: call, answer or admin", code="key_scopes")
    if "call" in scopes and len(scopes) > 1:
        raise ToolError(
            "a key that can call is an agent's, and an agent never answers for a person nor changes the gateway; "
            "create a second key with the scopes answer or admin",
            code="key_scopes",
        )
