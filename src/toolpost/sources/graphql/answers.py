"""What came back from a GraphQL server: data, errors, or both, and what that means for the call."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.adapt import from_status
from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolOutputError
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
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Fault(NamedTuple):
    """One of the errors that a server tells."""

    message: str
    code: str
    path: str

    def __str__(self) -> str:
        told = f"{self.path}: {self.message}" if self.path else self.message
        return f"{told} ({self.code})" if self.code else told


class Answer(NamedTuple):
    """An answer that is one in GraphQL's sense; `secrets` are what was presented and must not be told.

    `began` says whether anything was executed: what fails before that has no data, not even null.
    """

    data: Any
    faults: list[Fault]
    status: int
    headers: Headers
    began: bool
    wait_s: float | None = None
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
            wait = retry_after(headers, now=time.time()) or _restored_after(content.get("extensions"))
            return Answer(content.get("data"), faults, status, headers, "data" in content, wait, secrets)
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
        if operation.kind == "mutation" and answer.began and error.status_code in _REFUSALS:
            error.status_code = None  # what is refused goes again with another credential, but not what had an effect
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
    coded = next((_STATUSES[fault.code] for fault in answer.faults if fault.code in _STATUSES), None)
    status = coded or (answer.status if answer.status >= 400 else None)
    error = ToolClientError(message) if status is None else from_status(status, message)
    error.retry_after_s = answer.wait_s
    return error


_REFUSALS = frozenset({401, 403})
# The status that a code would be elsewhere: Apollo's codes, and those that others use in their place (GitHub, Hasura,
# Hot Chocolate, Lighthouse, Linear, Saleor, Shopify, Spring).
_STATUSES: dict[str, int] = {
    **dict.fromkeys(("UNAUTHENTICATED", "UNAUTHORIZED", "AUTHENTICATION", "AUTHENTICATION_ERROR"), 401),
    **dict.fromkeys(("INVALID_JWT", "EXPIRED_SIGNATURE_ERROR", "AUTH_NOT_AUTHENTICATED", "401"), 401),
    **dict.fromkeys(("FORBIDDEN", "ACCESS_DENIED", "PERMISSION_DENIED", "AUTHORIZATION", "403"), 403),
    **dict.fromkeys(("INSUFFICIENT_SCOPES", "AUTH_NOT_AUTHORIZED"), 403),
    **dict.fromkeys(
        ("THROTTLED", "RATE_LIMITED", "RATELIMITED", "RATE_LIMIT_EXCEEDED", "TOO_MANY_REQUESTS", "429"), 429
    ),
    **dict.fromkeys(("INTERNAL_SERVER_ERROR", "INTERNAL_ERROR", "500"), 500),
    **dict.fromkeys(("SERVICE_UNAVAILABLE", "UNAVAILABLE", "503"), 503),
    "TIMEOUT": 504,
}


def _restored_after(extensions: Any) -> float | None:
    """How many seconds it takes until a query can be paid for, where a server counts its cost as Shopify does."""
    cost = _object(_object(extensions).get("cost"))
    purse = _object(cost.get("throttleStatus"))
    price, left, rate = cost.get("requestedQueryCost"), purse.get("currentlyAvailable"), purse.get("restoreRate")
    if not (isinstance(price, int | float) and isinstance(left, int | float) and isinstance(rate, int | float)):
        return None
    return (price - left) / rate if rate > 0 and price > left else None


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
    """The kind of an error, wherever a server says it and however it spells it."""
    beside = _object(error.get("extensions"))
    places = (
        beside.get("code"),
        beside.get("classification"),
        _object(beside.get("exception")).get("code"),
        beside.get("category"),
        error.get("type"),
        error.get("errorType"),
        error.get("code"),
    )
    code = next((str(place) for place in places if place and isinstance(place, str | int)), "")
    return _HUMP.sub("_", code).upper().replace("-", "_")


def _object(value: Any) -> dict[str, Any]:
    return value if is_object(value) else {}
