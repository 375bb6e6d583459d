"""What came back from a GraphQL server: data, errors, or both, and what that means for the call."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.adapt import from_status
from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import (
    ToolAuthError,
    ToolClientError,
    ToolOutputError,
    ToolRateLimitError,
    ToolServerError,
)
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.web.contents import UnreadableError, content_of, decoded
from toolpost.web.encoding import compact_json
from toolpost.web.failures import failure_of, presentable, retry_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.contracts.errors import ToolNodeError
    from toolpost.sources.graphql.operations import Operation
    from toolpost.web.sending import Reply
    from toolpost.wire.headers import Headers

_JSON = ("application/json",)
_TOLD_BY_STATUS = frozenset({401, 403, 429})
_REMEDY = "Check the credential of the source."
_MOST_TOLD = 5
_LONGEST_LOOK = 4096
_LONGEST_QUOTE = 120


class Fault(NamedTuple):
    """One of the errors that a server tells."""

    message: str
    code: str
    path: str

    def __str__(self) -> str:
        told = f"{self.path}: {self.message}" if self.path else self.message
        return f"{told} ({self.code})" if self.code else told


class Answer(NamedTuple):
    """An answer that is one in GraphQL's sense; `secrets` are what was presented and must not be told."""

    data: Any
    faults: list[Fault]
    status: int
    headers: Headers
    secrets: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """Whether the status says that all went well."""
        return 200 <= self.status < 300

    @property
    def told(self) -> str:
        """The errors in one line."""
        more = len(self.faults) - _MOST_TOLD
        listed = [*map(str, self.faults[:_MOST_TOLD]), *([f"and {more} more"] if more > 0 else [])]
        return presentable("; ".join(listed), self.secrets)


def answer_of(subject: str, reply: Reply, *, secrets: Sequence[str] = ()) -> Answer:
    """Read an answer; what is none is the error that its status stands for, or a ToolOutputError."""
    status, headers = reply.status, reply.headers
    if status in _TOLD_BY_STATUS:
        raise failure_of(subject, status, headers, reply.body, remedy=_REMEDY, secrets=secrets)
    try:
        content = content_of(reply.body, headers.get("content-type") or "", declared=_JSON).value
        fault = "it is not a GraphQL answer: an object with data or errors"
    except UnreadableError as error:
        content, fault = None, str(error)
    ok = 200 <= status < 300
    if is_object(content) and ("data" in content or "errors" in content):
        faults = faults_of(content.get("errors"))
        if ok or faults:
            return Answer(content.get("data"), faults, status, headers, secrets)
    if not ok:
        raise failure_of(subject, status, headers, reply.body, remedy=_REMEDY, secrets=secrets)
    begins = presentable(decoded(reply.body[:_LONGEST_LOOK]), secrets)[:_LONGEST_QUOTE]
    raise ToolOutputError(f"{subject} answered {status}, but the answer is unusable: {fault}. It begins: {begins!r}")


def output_of(operation: Operation, answer: Answer, subject: str) -> ToolOutput:
    """The value of the operation's field; errors beside it are told, unless nothing or something half done is left."""
    data = answer.data
    value = data.get(operation.name) if is_object(data) else None
    if answer.faults and (value is None or operation.kind == "mutation" or not answer.ok):
        error = failure(answer, subject, effect=value is not None)
        if operation.kind == "query" and error.status_code is None:
            error.status_code = _refusal(answer)  # of a query all may go again with another credential
        raise error
    if not is_object(data) or operation.name not in data:
        raise ToolOutputError(f"{subject} answered without errors, but there is no {operation.name!r} in its data")
    if not answer.faults:
        return ToolOutput(value)
    return ToolOutput(value).noted(f"The server told errors beside this data: {answer.told}")


def failure(answer: Answer, subject: str, *, effect: bool = False) -> ToolNodeError:
    """The error that an answer's errors stand for: by their codes, else by the status."""
    message = f"{subject} failed: {answer.told}"
    if effect:
        message = f"{message.rstrip('.')}. It gave data too, so it may have had its effect"
    kind = next((_KINDS[fault.code] for fault in answer.faults if fault.code in _KINDS), None)
    if kind is None and answer.status >= 400:
        error = from_status(answer.status, message)
    else:
        error = (kind or ToolClientError)(message)
    error.retry_after_s = retry_after(answer.headers, now=time.time())
    return error


# Apollo's codes and those that others use in their place: GitHub, Hasura, Hot Chocolate, Shopify, Spring.
_KINDS: dict[str, type[ToolNodeError]] = {
    "UNAUTHENTICATED": ToolAuthError,
    "UNAUTHORIZED": ToolAuthError,
    "FORBIDDEN": ToolAuthError,
    "ACCESS_DENIED": ToolAuthError,
    "INVALID_JWT": ToolAuthError,
    "INSUFFICIENT_SCOPES": ToolAuthError,
    "AUTH_NOT_AUTHENTICATED": ToolAuthError,
    "AUTH_NOT_AUTHORIZED": ToolAuthError,
    "RATE_LIMITED": ToolRateLimitError,
    "RATELIMITED": ToolRateLimitError,
    "RATE_LIMIT_EXCEEDED": ToolRateLimitError,
    "TOO_MANY_REQUESTS": ToolRateLimitError,
    "THROTTLED": ToolRateLimitError,
    "INTERNAL_SERVER_ERROR": ToolServerError,
    "INTERNAL_ERROR": ToolServerError,
    "SERVICE_UNAVAILABLE": ToolServerError,
    "UNAVAILABLE": ToolServerError,
    "TIMEOUT": ToolServerError,
}


_NOT_KNOWN = frozenset({"UNAUTHENTICATED", "UNAUTHORIZED", "INVALID_JWT", "AUTH_NOT_AUTHENTICATED"})


def _refusal(answer: Answer) -> int | None:
    """The status that a refusal would have elsewhere: 401 for who is not known, 403 for what they may not."""
    codes = [fault.code for fault in answer.faults if _KINDS.get(fault.code) is ToolAuthError]
    if not codes:
        return None
    return 401 if codes[0] in _NOT_KNOWN else 403


def faults_of(errors: Any) -> list[Fault]:
    """The errors of an answer, in whatever form; some servers tell a text where a list is asked for."""
    if not errors:
        return []
    return [_fault(error) for error in (errors if is_array(errors) else [errors])]


def _fault(error: Any) -> Fault:
    if not is_object(error):
        return Fault(error if isinstance(error, str) else compact_json(error), "", "")
    message = error.get("message")
    path = error.get("path")
    return Fault(
        message if isinstance(message, str) and message else "no reason given",
        _code(error),
        ".".join(map(str, path)) if is_array(path) else "",
    )


def _code(error: dict[str, Any]) -> str:
    """The kind of an error, wherever a server says it."""
    beside = error.get("extensions")
    extensions = beside if is_object(beside) else {}
    places = (extensions.get("code"), extensions.get("classification"), error.get("type"), error.get("code"))
    code = next((place for place in places if isinstance(place, str) and place), "")
    return code.upper().replace("-", "_")
