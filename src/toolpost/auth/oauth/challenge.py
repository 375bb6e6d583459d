"""What a refused request says would help: the WWW-Authenticate fields of a 401 or 403 (RFC 9110 section 11.6.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from toolpost.wire.requests import Headers

_LONGEST = 16 * 1024
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - RFC 9110's word for a word
_PARAMETER = re.compile(rf'({_TOKEN})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|((?!=)[^\s",]+))', re.DOTALL)
_SCHEME = re.compile(rf"({_TOKEN})(?:[ \t]+|(?=,)|$)")
_TOKEN68 = re.compile(r"[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|$))")
_BETWEEN = re.compile(r"[\s,]*")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """One way to be let in; names are in lower case, and of two parameters with one name the first counts."""

    scheme: str
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    token68: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a protected server asks for: Bearer or DPoP tokens (RFC 6750, RFC 9449), with which scopes.

    `scopes` are None where it did not say. `resource_metadata` is where its document lies (RFC 9728).
    """

    status: int = 401
    dpop: bool = False
    bearer: bool = True
    error: str = ""
    scopes: tuple[str, ...] | None = None
    resource_metadata: str | None = None

    @property
    def wants_more_scopes(self) -> bool:
        """Whether the token was good, but not for this."""
        return self.error == "insufficient_scope"


def demand_of(status: int, headers: Headers) -> Demand:
    """The demand of an answer; an empty one where it has no challenge that an OAuth client can meet."""
    found = [one for one in parse_challenges(headers.get_all("www-authenticate")) if one.scheme in {"bearer", "dpop"}]
    told: dict[str, str] = {}
    for challenge in found:
        told = {**challenge.parameters, **told}
    schemes = {challenge.scheme for challenge in found}
    scope = told.get("scope")
    return Demand(
        status=status,
        dpop="dpop" in schemes,
        bearer="bearer" in schemes or not schemes,
        error=told.get("error", ""),
        scopes=None if scope is None else tuple(dict.fromkeys(scope.split())),
        resource_metadata=told.get("resource_metadata") or None,
    )


def parse_challenges(values: Iterable[str]) -> tuple[Challenge, ...]:
    """Every challenge, in order; what cannot be read ends the field that it stands in."""
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
    found: dict[str, str] = {}
    at = _skip(text, at)
    while parameter := _PARAMETER.match(text, at):
        name, quoted, plain = parameter.groups()
        found.setdefault(name.lower(), plain if quoted is None else _ESCAPED.sub(r"\1", quoted))
        at = _skip(text, parameter.end())
    return found, at


def _skip(text: str, at: int) -> int:
    between = _BETWEEN.match(text, at)
    return between.end() if between else at
