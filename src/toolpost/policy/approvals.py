"""Approvals: who may answer a question."""

from __future__ import annotations

import unicodedata
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec import Struct

from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.schema.hidden_text import strip_invisible

if TYPE_CHECKING:
    from toolpost.contracts.questions import Decision, PendingAction


class Approvals(Struct, frozen=True, kw_only=True):
    """The approvers of a tool; the general setting replaces a field that is None.

    `answerers` are patterns of `tenant:user`. With `four_eyes`, the requester may not answer. With `person`, a question
    of a tool or a server is never sent to the MCP client that made the call.
    """

    four_eyes: bool | None = None
    answerers: tuple[str, ...] | None = None
    person: bool | None = None

    def over(self, general: Approvals) -> Approvals:
        """Return these approvals with the general ones for every field that is None."""
        return Approvals(
            four_eyes=general.four_eyes if self.four_eyes is None else self.four_eyes,
            answerers=general.answerers if self.answerers is None else self.answerers,
            person=general.person if self.person is None else self.person,
        )


ANYBODY = Approvals()


def answer_refusal(action: PendingAction, by: str, decision: Decision) -> str:
    """Return the reason why a person may not give this answer, or an empty string.

    The requester may always deny, which withdraws the call.
    """
    who, question = Principal.parse(by), action.question
    if question.kind == "consent":  # it is the requester's account, and a user name is not a pattern
        return "" if who == action.asked_by else f"only {action.asked_by} may"
    if action.answerers is not None and not any(_fits(who, pattern) for pattern in action.answerers):
        return f"only {' or '.join(action.answerers)} may"
    if question.four_eyes and decision != "deny" and is_same_person(who, action.asked_by):
        return "the requester may not answer (four_eyes); another user must"
    return ""


def _fits(who: Principal, pattern: str) -> bool:
    """Return whether a principal matches a pattern of `tenant:user`; the tenant defaults to the local one."""
    return fnmatchcase(str(who), pattern if ":" in pattern else f"{LOCAL_TENANT}:{pattern}")


def is_same_person(one: Principal, other: Principal) -> bool:
    """Return whether two principals are one person, regardless of case, blanks and Unicode forms."""
    return _plain(str(one)) == _plain(str(other))


def _plain(name: str) -> str:
    return "".join(strip_invisible(unicodedata.normalize("NFKC", name)).casefold().split())
