"""OAuth flows: generators that yield requests and receive responses, the driver that sends them, and OAuth errors.

A flow opens no socket, so it is tested as a list of requests. A request that fails on its way is thrown into the flow
as the error of the HTTP client.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlencode, urlsplit

from msgspec import Struct

from toolpost.contracts.errors import ToolAuthError, ToolError, ToolNodeError, from_status
from toolpost.contracts.records import represent
from toolpost.schema.json_values import is_object
from toolpost.wire.messages import Headers, Pairs, Request

if TYPE_CHECKING:
    from toolpost.wire.client import HttpClient

ACCEPT_JSON: Pairs = (("Accept", "application/json"),)

T = TypeVar("T")
Clock: TypeAlias = Callable[[], float]
ANSWER_BYTES = 1024 * 1024
ANSWER_TIMEOUT_S = 10.0
_LONGEST = 200
_SHORTEST_SECRET = 4
_SECRET_FIELDS = frozenset(
    {
        "assertion",
        "client_assertion",
        "client_secret",
        "code",
        "code_verifier",
        "device_code",
        "refresh_token",
        "subject_token",
        "token",
    }
)
CLIENT_REFUSED = "oauth_client_refused"
_ABOUT_THE_CLIENT = frozenset({"invalid_client", "unauthorized_client"})


class FlowRequest(Struct, frozen=True, kw_only=True):
    """One request of a flow; `form` or `json` is its body.

    `documents` are the URLs of the documents that led here, the first one first. Their authors may point at less than
    an operator may.
    """

    method: Literal["GET", "POST"]
    url: str
    headers: Pairs = ACCEPT_JSON
    form: Pairs | None = None
    json: Any = None
    documents: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return represent(self, without=("url", "headers", "form", "json"))


class FlowResponse(NamedTuple):
    """Response to a request of a flow, whatever its status."""

    status: int
    headers: Headers
    body: bytes

    def __repr__(self) -> str:
        return f"FlowResponse({self.status})"


Flow: TypeAlias = Generator[FlowRequest, FlowResponse, T]


def json_object(reply: FlowResponse) -> dict[str, Any] | None:
    """Parse the JSON object of a response, whatever its content type; None for anything else."""
    try:
        value: object = json.loads(reply.body)
    except (ValueError, RecursionError):
        return None
    return value if is_object(value) else None


async def run_flow(flow: Flow[T], client: HttpClient) -> T:
    """Send the requests of a flow one after another and return its result."""
    try:
        ask = next(flow)
        while True:
            try:
                reply = await _send(ask, client)
            except ToolError as failed:
                ask = flow.throw(failed)
            else:
                ask = flow.send(reply)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        flow.close()


async def _send(ask: FlowRequest, client: HttpClient) -> FlowResponse:
    for document in ask.documents:
        client = client.for_document(document)
    async with await client.send(_request(ask)) as response:
        return FlowResponse(response.status, response.headers, await response.read())


def _request(ask: FlowRequest) -> Request:
    headers, body = ask.headers, None
    if ask.form is not None:
        headers, body = (*headers, ("Content-Type", "application/x-www-form-urlencoded")), urlencode(ask.form).encode()
    elif ask.json is not None:
        headers, body = (*headers, ("Content-Type", "application/json")), json.dumps(ask.json).encode()
    return Request(
        ask.method,
        ask.url,
        headers=headers,
        body=body,
        timeout_s=ANSWER_TIMEOUT_S,
        max_bytes=ANSWER_BYTES,
        follow="safe" if ask.method == "GET" else "none",
    )


class OAuthProblem(NamedTuple):
    """The `error` and `error_description` of RFC 6749 section 5.2; both empty where there are none."""

    code: str = ""
    description: str = ""

    @property
    def message(self) -> str:
        """The description for a person, else the code."""
        return self.description or self.code


class OAuthResponseError(Exception):
    """The cause of a ToolAuthError that stands for an OAuth error of the authorization server."""

    def __init__(self, problem: OAuthProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def problem_behind(failed: BaseException) -> OAuthProblem | None:
    """Return the OAuth error that caused an error, if any."""
    return failed.__cause__.problem if isinstance(failed.__cause__, OAuthResponseError) else None


def parse_problem(reply: FlowResponse, *, secrets: Iterable[str] = ()) -> OAuthProblem:
    """Parse the OAuth error of a response of any status: some servers say 200 and mean no."""
    body = json_object(reply) or {}
    code, description = body.get("error"), body.get("error_description")
    hidden = tuple(secrets)
    return OAuthProblem(
        presentable(code, hidden) if isinstance(code, str) else "",
        presentable(description, hidden) if isinstance(description, str) else "",
    )


def refusal_error(subject: str, reply: FlowResponse, *, secrets: Iterable[str] = ()) -> ToolNodeError:
    """Return the error for a response that is not what was requested."""
    problem = parse_problem(reply, secrets=secrets)
    if reply.status == 429 or reply.status >= 500:
        text = f": {problem.message}" if problem.code else ""
        return from_status(
            reply.status, f"{subject} answered {reply.status}{text}. It has a problem of its own, which may pass."
        )
    if problem.code:
        code = CLIENT_REFUSED if problem.code in _ABOUT_THE_CLIENT else "oauth_refused"
        message = f"OAuth error: {problem.message} ({subject}, {problem.code})"
        return ToolAuthError(message, code=code, cause=OAuthResponseError(problem))
    return ToolAuthError(f"{subject} {_oddity(reply)}", code="oauth_response")


def with_context(failed: ToolError, requested: str) -> ToolError:
    """Return the same error with the request in front of its message."""
    failed.message = f"{requested}: {failed.message}"
    failed.args = (failed.message,)
    return failed


def presentable(text: str, secrets: Iterable[str] = ()) -> str:
    """Return one short line without secrets and control characters."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "…")
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 10 * _LONGEST]).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def secrets_in(form: Pairs) -> tuple[str, ...]:
    """Return the secret values of a form, which a server might echo."""
    return tuple(value for name, value in form if name in _SECRET_FIELDS)


def host_of(url: str) -> str:
    """Return the host of a URL, the part that an error may show."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "nowhere"
    except ValueError:
        return "nowhere"


def _oddity(reply: FlowResponse) -> str:
    if 300 <= reply.status < 400:
        return f"redirects ({reply.status}) instead of answering, which is not followed. Check its URL."
    kind = (reply.headers.get("content-type") or "no type").partition(";")[0].strip()
    what = "something that is no JSON object" if json_object(reply) is None else "something else than was asked for"
    return f"answered {reply.status} with {what} ({presentable(kind)}). Check its URL."
