"""What an authorization server says when it refuses, as errors that a person can read and that tell no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from toolpost.auth.oauth.flow import json_object
from toolpost.contracts.adapt import from_status
from toolpost.contracts.errors import ToolAuthError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolpost.auth.oauth.flow import Reply
    from toolpost.contracts.errors import ToolError, ToolNodeError
    from toolpost.wire.requests import Pairs

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


class OAuthProblem(NamedTuple):
    """The `error` and `error_description` of RFC 6749 section 5.2; both empty where there are none."""

    code: str = ""
    description: str = ""

    @property
    def told(self) -> str:
        """The words for a person."""
        return self.description or self.code


class OAuthResponseError(Exception):
    """The cause of a ToolAuthError that stands for an OAuth error of the authorization server."""

    def __init__(self, problem: OAuthProblem) -> None:
        super().__init__(problem.told)
        self.problem = problem


def problem_behind(failed: BaseException) -> OAuthProblem | None:
    """Return the OAuth error that an error stands for, if it does."""
    return failed.__cause__.problem if isinstance(failed.__cause__, OAuthResponseError) else None


def problem_of(reply: Reply, *, secrets: Iterable[str] = ()) -> OAuthProblem:
    """What is wrong, in an answer of any status: some servers say 200 and mean no."""
    told = json_object(reply) or {}
    code, description = told.get("error"), told.get("error_description")
    hidden = tuple(secrets)
    return OAuthProblem(
        presentable(code, hidden) if isinstance(code, str) else "",
        presentable(description, hidden) if isinstance(description, str) else "",
    )


def refusal_of(subject: str, reply: Reply, *, secrets: Iterable[str] = ()) -> ToolNodeError:
    """The error that an answer stands for which is not what was asked for."""
    problem = problem_of(reply, secrets=secrets)
    if reply.status == 429 or reply.status >= 500:
        told = f": {problem.told}" if problem.code else ""
        return from_status(reply.status, f"{subject} answered {reply.status}{told}. Try again later.")
    if problem.code:
        code = CLIENT_REFUSED if problem.code in _ABOUT_THE_CLIENT else "oauth_refused"
        message = f"OAuth error: {problem.told} ({subject}, {problem.code})"
        return ToolAuthError(message, code=code, cause=OAuthResponseError(problem))
    return ToolAuthError(f"{subject} {_oddity(reply)}", code="oauth_response")


def with_context(failed: ToolError, asked: str) -> ToolError:
    """The same error, and before its words what was asked and of whom."""
    failed.message = f"{asked}: {failed.message}"
    failed.args = (failed.message,)
    return failed


def presentable(text: str, secrets: Iterable[str] = ()) -> str:
    """One short line without secrets and without anything that could play tricks on a terminal or a reader."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "…")
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 10 * _LONGEST]).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def secrets_in(form: Pairs) -> tuple[str, ...]:
    """The values of a form that a server might echo and that nobody may read."""
    return tuple(value for name, value in form if name in _SECRET_FIELDS)


def host_of(url: str) -> str:
    """The part of a URL that an error may tell."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "nowhere"
    except ValueError:
        return "nowhere"


def _oddity(reply: Reply) -> str:
    if 300 <= reply.status < 400:
        return f"redirects ({reply.status}) instead of answering, which is not followed. Check its URL."
    kind = (reply.headers.get("content-type") or "no type").partition(";")[0].strip()
    what = "something that is no JSON object" if json_object(reply) is None else "something else than was asked for"
    return f"answered {reply.status} with {what} ({presentable(kind)}). Check its URL."
