"""A request as it is sent once, and the step that a redirect makes of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from toolpost.contracts.errors import ToolPermissionError
from toolpost.wire.network import REFUSED, join_url, parse_target, split_url

if TYPE_CHECKING:
    from toolpost.wire.headers import Headers, Pairs
    from toolpost.wire.network import Target
    from toolpost.wire.requests import Content, Follow

REDIRECTS = frozenset({301, 302, 303, 307, 308})

_SAFE_METHODS = frozenset({"GET", "HEAD"})
# What any stranger may read. All else, Authorization, Cookie and keys of every name among it, was meant for one origin.
_FOR_ANYBODY = frozenset({"accept", "accept-encoding", "accept-language", "cache-control", "range", "user-agent"})
# RFC 3986 §2 leaves these out; brackets are let through, for servers that read them in queries.
_NOT_IN_URL = re.compile(r"""[^!-~]|["<>^`{|}]""")


class Step(NamedTuple):
    """One request to one target."""

    method: str
    url: str
    target: Target
    headers: Pairs
    body: Content
    follow: Follow
    connect_s: float

    @property
    def subject(self) -> str:
        """What an error may tell of it: a path or a query may hold a key."""
        return f"{self.method} {split_url(self.url)[0]}"


def request_path(url: str) -> str:
    """What the request line says: path and query, without the fragment, in plain ASCII."""
    path = split_url(url)[1]
    if "#" in path:
        path = path.partition("#")[0]
    if not path.startswith("/"):
        path = f"/{path}"
    if _NOT_IN_URL.search(path) is None:
        return path
    return _NOT_IN_URL.sub(lambda found: quote(found[0]), path)


def next_step(step: Step, status: int, headers: Headers) -> Step | None:
    """The step that a redirect asks for, or None when the answer is to be taken as it is.

    A body is sent again to the origin that had it already, and to nobody else.
    """
    if status not in REDIRECTS or not (location := headers.get("location")) or not _follows(step):
        return None
    url = join_url(step.url, location)
    target = parse_target(url)
    if (step.target.scheme, target.scheme) == ("https", "http"):
        raise ToolPermissionError(f"it leads to {target.host!r} without TLS", code=REFUSED)
    following = step._replace(method=_method(step.method, status), url=url, target=target)
    if following.method != step.method:
        kept = tuple(pair for pair in step.headers if not pair[0].lower().startswith("content-"))
        following = following._replace(body=None, headers=kept)
    if _origin(step.target) == _origin(target):
        return following
    if following.body is not None:
        return None
    return following._replace(headers=tuple(pair for pair in step.headers if pair[0].lower() in _FOR_ANYBODY))


def _follows(step: Step) -> bool:
    if step.follow == "all":
        return isinstance(step.body, bytes | None)  # a stream is gone once it was sent
    return step.follow == "safe" and step.method in _SAFE_METHODS


def _method(method: str, status: int) -> str:
    """RFC 9110 §15.4: 307 and 308 keep the method; the older codes turn a POST into a GET, and 303 everything."""
    if status in {307, 308} or method in _SAFE_METHODS:
        return method
    return "GET" if status == 303 or method == "POST" else method


def _origin(target: Target) -> tuple[str, str, int]:
    return target.scheme, target.ascii_host, target.port
