"""Who calls are for: the people named, or the one at this machine."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

from toolpost.contracts.principal import LOCAL_TENANT, Principal

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext

_MOST_KNOWN = 10_000


class People:
    """Principals by what was written, each read once."""

    def __init__(self) -> None:
        self._known: dict[str | None, Principal] = {}

    def within(self, context: ToolContext, user: str | None) -> Principal:
        """Whom a call with a context is for; ValueError where that names somebody else."""
        named = context.user_id
        if named is None:
            return self.of(user)
        if context.tenant_id is not None and ":" not in named:
            named = f"{context.tenant_id}:{named}"
        if user is None:
            return self.of(named)
        person = self.of(user)
        if named != str(person) and (named != person.user or ":" in named):  # a name may look like `tenant:user`
            raise ValueError(f"the call is for {str(person)!r}, and its context for {named!r}; name one of them")
        return person

    def of(self, user: str | None) -> Principal:
        """The principal written `tenant:user`; None is the person at this machine."""
        person = self._known.get(user)
        if person is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            person = Principal.parse(user) if user is not None else Principal(LOCAL_TENANT, login_name())
            self._known[user] = person
        return person


def login_name() -> str:
    """The login of the person at this machine; a process without a name goes by its number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no entry in the password database, as in many containers
        return str(os.getuid())
