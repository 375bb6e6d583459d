"""Principals: the user and the tenant that a call is for."""

from __future__ import annotations

import getpass
import os
import re
from typing import NamedTuple

LOCAL_TENANT = "local"
_MOST_CACHED = 10_000
# Control characters, line separators, and characters of zero width or that change the direction of text.
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


class Principal(NamedTuple):
    """A person or service within a tenant; written `tenant:user`."""

    tenant: str
    user: str

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Parse `tenant:user`; a name without a tenant belongs to the local one."""
        tenant, colon, user = text.partition(":")
        if not colon:
            tenant, user = LOCAL_TENANT, text
        if not tenant or not user or not _is_whole(text) or has_control(text):
            raise ValueError(f"user {text!r} is not of the form 'tenant:user', in characters that can be seen")
        return cls(tenant, user)

    def __str__(self) -> str:
        return f"{self.tenant}:{self.user}"


class PrincipalCache(dict[str | None, Principal]):
    """Principals by their text `tenant:user`, each parsed once; None is the user of this machine."""

    def within(self, named: str | None, tenant: str | None, user: str | None) -> Principal:
        """Return the principal of a call with a user in its context; ValueError if `user` is another."""
        if named is None:
            return self[user]
        if tenant is not None and ":" not in named:
            named = f"{tenant}:{named}"
        if user is None:
            return self[named]
        person = self[user]
        if named != str(person) and (named != person.user or ":" in named):  # a name may look like `tenant:user`
            raise ValueError(f"the call is for {str(person)!r}, and its context for {named!r}; name one of them")
        return person

    def __missing__(self, user: str | None) -> Principal:
        if len(self) >= _MOST_CACHED:
            self.clear()
        person = self[user] = Principal.parse(user) if user is not None else Principal(LOCAL_TENANT, login_name())
        return person


def login_name() -> str:
    """Return the login of this process, or its user number if it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no entry in the password database, as in many containers
        return str(os.getuid())


def has_control(text: str) -> bool:
    """Return whether a name has invisible characters, such as line breaks: it could imitate another name in a log."""
    return not text.isprintable() and _HIDDEN.search(text) is not None


def _is_whole(text: str) -> bool:
    """Return False for text with lone surrogates, as from invalid bytes on a command line: it cannot be stored."""
    return text.isascii() or text == text.encode("utf-8", "replace").decode()
