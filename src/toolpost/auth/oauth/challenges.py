"""Challenges of a WWW-Authenticate field (RFC 9110): the tokens and scopes that a protected server requires."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from toolpost.contracts.http_syntax import TOKEN
from toolpost.wire.messages import Headers

_LONGEST = 16 * 1024
_PARAMETER = re.compile(rf'({TOKEN})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|((?!=)[^\s",]+))', re.DOTALL)
_SCHEME = re.compile(rf"({TOKEN})(?:[ \t]+|(?=,)|$)")
_TOKEN68 = re.compile(r"[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|$))")
_BETWEEN = re.compile(r"[\s,]*")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class Challenge(Struct, frozen=True, kw_only=True):
    """One challenge of a WWW-Authenticate field (RFC 9110 section 11.6.1).

    Names are in lower case; the first of two parameters with the same name applies.
    """

    scheme: str
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    token68: str = ""


class AuthChallenge(Struct, frozen=True, kw_only=True):
    """The tokens and scopes that a protected server requires (RFC 6750, RFC 9449).

    `scopes` are None if the challenge names none. `resource_metadata` is the URL of its metadata (RFC 9728).
    """

    status: int = 401
    dpop: bool = False
    bearer: bool = True
    error: str = ""
    scopes: tuple[str, ...] | None = None
    resource_metadata: str | None = None

    @property
    def wants_more_scopes(self) -> bool:
        """Whether the token was valid but lacks scopes."""
        return self.error == "insufficient_scope"


def parse_auth_challenge(status: int, headers: Headers) -> AuthChallenge:
    """Parse the challenge of a response; return an empty one without a Bearer or DPoP challenge."""
    challenges = [
        one for one in parse_challenges(headers.get_all("www-authenticate")) if one.scheme in {"bearer", "dpop"}
    ]
    parameters: dict[str, str] = {}
    for challenge in challenges:
        parameters = {**challenge.parameters, **parameters}
    schemes = {challenge.scheme for challenge in challenges}
    scope = parameters.get("scope")
    return AuthChallenge(
        status=status,
        dpop="dpop" in schemes,
        bearer="bearer" in schemes or not schemes,
        error=parameters.get("error", ""),
        scopes=None if scope is None else tuple(dict.fromkeys(scope.split())),
        resource_metadata=parameters.get("resource_metadata") or None,
    )


def parse_challenges(values: Iterable[str]) -> tuple[Challenge, ...]:
    """Parse all challenges in order; a syntax error ends its field."""
    return tuple(challenge for value in values for challenge in _field(value[:_LONGEST]))


def _field(text: str) -> Iterator[Challenge]:
    at = _skip(text, 0)
    while at < len(text) and (scheme := _SCHEME.match(text, at)):
        token68 = _TOKEN68.match(text, scheme.end())
        if token68 and _PARAMETER.match(text, scheme.end()) is None:
            at = _skip(text, token68.end())
            yield Challenge(scheme=scheme[1].lower(), token68=token68[0])
            continue
        parameters, at = _parameters(text, scheme.end())
        yield Challenge(scheme=scheme[1].lower(), parameters=parameters)


def _parameters(text: str, at: int) -> tuple[dict[str, str], int]:
    parameters: dict[str, str] = {}
    at = _skip(text, at)
    while parameter := _PARAMETER.match(text, at):
        name, quoted, plain = parameter.groups()
        parameters.setdefault(name.lower(), plain if quoted is None else _ESCAPED.sub(r"\1", quoted))
        at = _skip(text, parameter.end())
    return parameters, at


def _skip(text: str, at: int) -> int:
    between = _BETWEEN.match(text, at)
    return between.end() if between else at
