"""Who may answer a question: anybody of the tenant, only named people, or anybody but the asker."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.schema.hidden_text import without_hidden

if TYPE_CHECKING:
    from toolpost.contracts.questions import Decision, PendingAction


@dataclass(frozen=True, slots=True, kw_only=True)
class Approvals:
    """Who may answer questions about a tool; what is None is said elsewhere, or by nobody.

    `answerers` are patterns of `tenant:user`. With `four_eyes` whoever asked may not answer.
    """

    four_eyes: bool | None = None
    answerers: tuple[str, ...] | None = None

    def over(self, general: Approvals) -> Approvals:
        """These, and where they say nothing the general ones."""
        return Approvals(
            four_eyes=general.four_eyes if self.four_eyes is None else self.four_eyes,
            answerers=general.answerers if self.answerers is None else self.answerers,
        )


ANYBODY = Approvals()


def answer_refusal(action: PendingAction, by: str, decision: Decision) -> str:
    """Why somebody may not give this answer; empty when they may. A no by the asker withdraws the call, so it may."""
    who, question = Principal.parse(by), action.question
    if question.kind == "consent":  # the account is the asker's own; a name is no pattern here
        return "" if who == action.asked_by else f"only {action.asked_by} may"
    if action.answerers is not None and not any(_fits(who, pattern) for pattern in action.answerers):
        return f"only {' or '.join(action.answerers)} may"
    if question.four_eyes and decision != "deny" and _is_same(who, action.asked_by):
        return "whoever asked may not answer (four_eyes); another person has to"
    return ""


def _fits(who: Principal, pattern: str) -> bool:
    """Whether somebody fits a pattern of `tenant:user`; one without a tenant is of the local one."""
    return fnmatchcase(str(who), pattern if ":" in pattern else f"{LOCAL_TENANT}:{pattern}")


def _is_same(one: Principal, other: Principal) -> bool:
    """Whether two names are one person's, however they are written."""
    return _plain(str(one)) == _plain(str(other))


def _plain(name: str) -> str:
    return "".join(without_hidden(unicodedata.normalize("NFKC", name)).casefold().split())
