"""Effects of a tool by the claims of its own source.

Claims are free-form words of the other side, such as MCP annotations. What a standard defines, such as the HTTP method
or the kind of a GraphQL operation, is no claim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.spec import SafetyProfile
from toolpost.schema.jsontypes import is_object

if TYPE_CHECKING:
    from toolpost.contracts.spec import ReplayClass, SideEffects, ToolSpec


class Claims(NamedTuple):
    """What a source says of one of its tools; None is where it says nothing."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


class Effects(NamedTuple):
    """What a call may do, as a tool's record holds it."""

    side_effects: SideEffects
    replay: ReplayClass
    safety: SafetyProfile


_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def annotated_claims(annotations: Any) -> Claims:
    """Read the annotations of an MCP tool; a hint that is no boolean says nothing."""
    given: dict[str, Any] = annotations if is_object(annotations) else {}
    return Claims(*(hint if isinstance(hint := given.get(name), bool) else None for name in _HINTS))


def claimed_effects(claims: Claims, *, trusted: bool, remote: bool) -> Effects:
    """Read claims into effects; those of a source that the operator does not trust only make its tools stricter.

    A tool that is said to read only and to destroy is destructive, whoever says so.
    """
    network = remote or claims.open_world is True
    if claims.read_only and claims.destructive:
        return Effects("external", "unsafe", SafetyProfile(network=network, destructive=True, open_world=True))
    if not trusted:
        destructive = True if claims.destructive else None
        return Effects("external", "unsafe", SafetyProfile(network=network, destructive=destructive, open_world=True))
    if claims.read_only:
        return Effects("read", "idempotent", SafetyProfile(network=network, destructive=False, open_world=network))
    replay: ReplayClass = "idempotent" if claims.idempotent else "unsafe"
    return Effects("external", replay, SafetyProfile(network=network, destructive=claims.destructive, open_world=True))


def claims_of(spec: ToolSpec) -> Claims:
    """What the source of a tool says of it; only MCP has words for that."""
    return annotated_claims(spec.extra.get("annotations"))


def in_words(claims: Claims) -> str:
    """The claims for people; empty where nothing is claimed."""
    told = {
        "reads only": claims.read_only is True,
        "destructive": claims.destructive is True,
        "destroys nothing": claims.destructive is False,
        "repeats safely": claims.idempotent is True,
    }
    return ", ".join(text for text, claimed in told.items() if claimed)


def would_loosen(claims: Claims) -> bool:
    """Whether calls would run unasked, or again, if the source were trusted."""
    trusted, untrusted = (claimed_effects(claims, trusted=trust, remote=True) for trust in (True, False))
    return trusted != untrusted
