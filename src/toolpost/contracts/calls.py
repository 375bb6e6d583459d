"""The stages of a call: each is made from the one before, so none can be skipped.

NamedTuples, because five of them are built for every call.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.fast_namedtuple import represent
from toolpost.contracts.outcomes import NO_META

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.questions import Answer
    from toolpost.contracts.spec import Tool


JSON = "application/json"
NO_ANSWERS: Mapping[str, Answer] = {}


def writable(given: str) -> str:
    """Return an id, or other text, that can be stored and shown; unpaired surrogates are escaped."""
    if given.__class__ is str and given.isascii():
        return given
    return str(given).encode("utf-8", "backslashreplace").decode()


class RequestedCall(NamedTuple):
    """What a caller asked for; nothing about it has been checked."""

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

    def __repr__(self) -> str:
        return represent(self, "arguments", "answers", "context", "idempotency_key")


class ValidatedCall(NamedTuple):
    """A call whose tool exists and whose arguments fit its schema."""

    request: RequestedCall
    tool: Tool
    arguments: dict[str, Any]

    def __repr__(self) -> str:
        return represent(self, "tool", "arguments")


class PermittedCall(NamedTuple):
    """A call that policy let through; `grant` is the answered question, if one was needed."""

    validated: ValidatedCall
    grant: str | None = None


class Credential(NamedTuple):
    """What a source presents to the other side; `key` tells sessions of different credentials apart.

    `proof` makes what else one request must carry, of its method, its URL and the nonce that the server wants in it.
    """

    key: str = "none"
    headers: Mapping[str, str] = {}
    proof: Callable[[str, str, str], Mapping[str, str]] | None = None

    def __repr__(self) -> str:
        return f"Credential(key={self.key!r})"


NO_CREDENTIAL = Credential()


class AuthorizedCall(NamedTuple):
    """The only thing that a source accepts: validated, permitted, with its credential."""

    permitted: PermittedCall
    credential: Credential
    context: Callable[[], ToolContext]

    @property
    def tool(self) -> Tool:
        """The tool to run."""
        return self.permitted.validated.tool

    @property
    def arguments(self) -> dict[str, Any]:
        """The validated arguments."""
        return self.permitted.validated.arguments

    @property
    def request(self) -> RequestedCall:
        """The call as it was asked for."""
        return self.permitted.validated.request

    @property
    def replay_key(self) -> str:
        """A key that stays the same however often this call is tried, for sides that deduplicate by key.

        Two people may choose one key for calls of their own, so that it is told with whose it is and for what.
        """
        request = self.permitted.validated.request
        if request.idempotency_key is None:
            return request.call_id
        whole = "\0".join((*request.principal, request.tool_name, request.idempotency_key))
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()


class ToolOutput(NamedTuple):
    """What a source brought back: JSON content, or bytes with their media type.

    `text` is what a model reads in place of the content; `meta` is what programs may want to know beside it, such
    as the status of an HTTP answer and how to ask for the next page.
    """

    content: Any
    text: str | None = None
    media_type: str = JSON
    meta: Mapping[str, Any] = NO_META

    def __repr__(self) -> str:
        return represent(self, "content", "text", "meta")

    def noted(self, note: str) -> ToolOutput:
        """The output with something to say beside its content, which is then said however large the content is."""
        if not note:
            return self
        told = self.text or (
            self.content if isinstance(self.content, str) else json.dumps(self.content, separators=(",", ":"))
        )
        notes = f"{self.meta['note']}\n{note}" if "note" in self.meta else note
        return self._replace(text=f"{told}\n\n{note}", meta={**self.meta, "note": notes})
