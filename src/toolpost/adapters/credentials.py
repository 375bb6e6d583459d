"""Credentials that tool values name: a login, a password or a token, by which a source is reached."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolpost.contracts.errors import ConfigError
from toolpost.contracts.source_kinds import AuthType


class NamedCredential(NamedTuple):
    """A credential under the name that tool values know it by; only the name is ever stored in a table.

    A second factor, or a password without a username, is sent as a bearer token; a username as HTTP Basic.
    """

    name: str
    username: str = ""
    password: str = ""
    second_factor: str = ""

    def __repr__(self) -> str:
        return f"NamedCredential({self.name!r})"

    def source_options(self) -> dict[str, Any]:
        """Return the options of a source that sends this credential."""
        if self.second_factor or (self.password and not self.username):
            return {"auth_type": AuthType.BEARER, "auth_config": {"token": self.second_factor or self.password}}
        if self.username:
            login = {"username": self.username, "password": self.password}
            return {"auth_type": AuthType.BASIC, "auth_config": login}
        raise ConfigError(f"the credential {self.name!r} is empty; give it a password, or a username and a password")
