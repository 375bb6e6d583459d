"""The stages of a call: each contains the previous one, and none can be skipped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from toolpost.contracts.outcomes import NO_META
from toolpost.contracts.principal import Principal
from toolpost.contracts.records import represent

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.questions import Answer
    from toolpost.contracts.spec import Tool

JSON = "application/json"
NO_ANSWERS: Mapping[str, Answer] = MappingProxyType({})
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class OutcomeKey(str):
    """An idempotency key that stores the outcome of a call for later requests.

    Calls with different keys of callers are different calls; this key makes no such difference.
    """

    __slots__ = ()


class RequestedCall(Struct, frozen=True):
    """A call as the caller requested it; nothing has been validated.

    Within a `session`, a repeated call is the same as one that waits; None if no other call is the same. A resumed call
    has the `same_call` and the `unattended` of its pending action: no person uses the MCP client that made the call. It
    runs only while this process is the `owner` of that action.
    """

    call_id: str
    run_id: str
    tool_name: str
    arguments: Any
    principal: Principal
    timeout_s: float | None = None
    idempotency_key: str | None = None
    correlation_id: str = ""
    task_id: str = ""
    context: ToolContext | None = None
    answers: Mapping[str, Answer] = NO_ANSWERS
    pending_id: str | None = None
    started: bool = False
    held: tuple[object, ...] = ()
    session: str | None = None
    same_call: str = ""
    unattended: bool = False
    owner: str = ""

    def __repr__(self) -> str:
        return represent(self, "arguments", "answers", "context", "idempotency_key")


class ValidatedCall(Struct, frozen=True):
    """A call of a known tool with arguments that match its schema."""

    request: RequestedCall
    tool: Tool
    arguments: dict[str, Any]

    def __repr__(self) -> str:
        return represent(self, "tool", "arguments")


class PermittedCall(Struct, frozen=True):
    """A call that the policy permits; `grant` is the id of the answered pending action, if one was needed."""

    validated: ValidatedCall
    grant: str | None = None


class Credential(Struct, frozen=True):
    """Headers that a source sends to authenticate; sessions are pooled by `key`.

    `proof` builds further headers for one request from its method, its URL and the server's nonce (DPoP, RFC 9449).
    With an `origin` (scheme, host and port), the credential is sent only to that origin.
    """

    key: str = "none"
    headers: Mapping[str, str] = _NO_HEADERS
    proof: Callable[[str, str, str], Mapping[str, str]] | None = None
    origin: str = ""

    def __repr__(self) -> str:
        return f"Credential(key={self.key!r})"


NO_CREDENTIAL = Credential()


class AuthorizedCall(Struct, frozen=True):
    """A validated and permitted call with its credential; a source accepts no other type.

    `attempt_s` is the limit of one attempt in seconds, if an override changes that of the source.
    """

    permitted: PermittedCall
    credential: Credential
    context: Callable[[], ToolContext]
    attempt_s: float | None = None

    @property
    def tool(self) -> Tool:
        return self.permitted.validated.tool

    @property
    def arguments(self) -> dict[str, Any]:
        return self.permitted.validated.arguments

    @property
    def request(self) -> RequestedCall:
        return self.permitted.validated.request

    @property
    def replay_key(self) -> str:
        """Return the idempotency key for the server, the same for every attempt of this call."""
        request = self.permitted.validated.request
        if request.idempotency_key is None:
            return request.call_id
        # Two users may choose the same key, so the principal and the tool are part of the hash.
        whole = "\0".join((*request.principal, request.tool_name, request.idempotency_key))
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


class ToolOutput(Struct, frozen=True):
    """The result of a source: JSON content, or bytes with their media type.

    `text` replaces the content for a model; `meta` is for programs, such as the status of an HTTP response and the
    arguments of the next page.
    """

    content: Any
    text: str | None = None
    media_type: str = JSON
    meta: Mapping[str, Any] = NO_META

    def __repr__(self) -> str:
        return represent(self, "content", "text", "meta")

    def with_note(self, note: str) -> ToolOutput:
        """Return the output with a note for the model, which is kept even if the content is cut."""
        if not note:
            return self
        notes = f"{self.meta['note']}\n{note}" if "note" in self.meta else note
        if isinstance(self.content, bytes):
            return replace(self, meta={**self.meta, "note": notes})
        text = self.text or (
            self.content if isinstance(self.content, str) else json.dumps(self.content, separators=(",", ":"))
        )
        return replace(self, text=f"{text}\n\n{note}", meta={**self.meta, "note": notes})
