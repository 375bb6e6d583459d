"""OAuth flows: generators that yield requests and receive responses, the driver that sends them, and OAuth errors.

A flow opens no socket, so it is tested as a list of requests. If a request fails, the error of the HTTP client is
thrown into the flow.
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
_CLIENT_ERRORS = frozenset({"invalid_client", "unauthorized_client"})


class FlowRequest(Struct, frozen=True, kw_only=True):
    """One request of a flow; `form` or `json` is its body.

    `documents` are the URLs of the documents that led to this request, in order. They may name fewer addresses than an
    operator.
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
    """Response to a request of a flow, with any status."""

    status: int
    headers: Headers
    body: bytes

    def __repr__(self) -> str:
        return f"FlowResponse({self.status})"


Flow: TypeAlias = Generator[FlowRequest, FlowResponse, T]


def json_object(reply: FlowResponse) -> dict[str, Any] | None:
    """Parse the JSON object of a response with any content type; None for anything else."""
    try:
        value: object = json.loads(reply.body)
    except (ValueError, RecursionError):
        return None
    return value if is_object(value) else None


async def run_flow(flow: Flow[T], client: HttpClient) -> T:
    """Send the requests of a flow one after another and return its result."""
    try:
        request = next(flow)
        while True:
            try:
                reply = await _send(request, client)
            except ToolError as failed:
                request = flow.throw(failed)
            else:
                request = flow.send(reply)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        flow.close()


async def _send(request: FlowRequest, client: HttpClient) -> FlowResponse:
    for document in request.documents:
        client = client.for_document(document)
    async with await client.send(_to_http(request)) as response:
        return FlowResponse(response.status, response.headers, await response.read())


def _to_http(request: FlowRequest) -> Request:
    headers, body = request.headers, None
    if request.form is not None:
        headers, body = (
            (*headers, ("Content-Type", "application/x-www-form-urlencoded")),
            urlencode(request.form).encode(),
        )
    elif request.json is not None:
        headers, body = (*headers, ("Content-Type", "application/json")), json.dumps(request.json).encode()
    return Request(
        request.method,
        request.url,
        headers=headers,
        body=body,
        timeout_s=ANSWER_TIMEOUT_S,
        max_bytes=ANSWER_BYTES,
        follow="safe" if request.method == "GET" else "none",
    )


class OAuthProblem(NamedTuple):
    """The `error` and `error_description` of RFC 6749 section 5.2; both empty if there are none."""

    code: str = ""
    description: str = ""

    @property
    def message(self) -> str:
        """The description, or the code if there is none."""
        return self.description or self.code


class OAuthResponseError(Exception):
    """The cause of a ToolAuthError that reports an OAuth error of the authorization server."""

    def __init__(self, problem: OAuthProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def problem_behind(failed: BaseException) -> OAuthProblem | None:
    """Return the OAuth error that caused an error, if any."""
    return failed.__cause__.problem if isinstance(failed.__cause__, OAuthResponseError) else None


def parse_problem(reply: FlowResponse, *, secrets: Iterable[str] = ()) -> OAuthProblem:
    """Parse the OAuth error of a response of any status: some servers send errors with status 200."""
    body = json_object(reply) or {}
    code, description = body.get("error"), body.get("error_description")
    hidden = tuple(secrets)
    return OAuthProblem(
        presentable(code, hidden) if isinstance(code, str) else "",
        presentable(description, hidden) if isinstance(description, str) else "",
    )


def refusal_error(subject: str, reply: FlowResponse, *, secrets: Iterable[str] = ()) -> ToolNodeError:
    """Return the error for a rejected or unexpected response."""
    problem = parse_problem(reply, secrets=secrets)
    if reply.status == 429 or reply.status >= 500:
        text = f": {problem.message}" if problem.code else ""
        return from_status(reply.status, f"{subject} failed with status {reply.status}{text}. Retry later.")
    if problem.code:
        code = CLIENT_REFUSED if problem.code in _CLIENT_ERRORS else "oauth_refused"
        message = f"OAuth error: {problem.message} ({subject}, {problem.code})"
        return ToolAuthError(message, code=code, cause=OAuthResponseError(problem))
    return ToolAuthError(f"{subject} {_describe_reply(reply)}", code="oauth_response")


def with_context(failed: ToolError, requested: str) -> ToolError:
    """Return the same error with the request as a prefix of its message."""
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
    """Return the host of a URL, the only part that errors show."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "nowhere"
    except ValueError:
        return "nowhere"


def _describe_reply(reply: FlowResponse) -> str:
    if 300 <= reply.status < 400:
        return f"redirected ({reply.status}), which is not followed. Check its URL."
    kind = (reply.headers.get("content-type") or "no type").partition(";")[0].strip()
    body = "a body that is not a JSON object" if json_object(reply) is None else "an unexpected JSON object"
    return f"returned status {reply.status} with {body} ({presentable(kind)}). Check its URL."
