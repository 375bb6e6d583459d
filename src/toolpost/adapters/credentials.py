"""Credentials that tool values name: a login, a password or a token, each for one server."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from toolpost.auth.credentials import ORIGIN
from toolpost.contracts.errors import ConfigError, ToolPermissionError
from toolpost.contracts.source_kinds import AuthType
from toolpost.wire.network import CREDENTIAL_ORIGIN
from toolpost.wire.targets import HTTP_SCHEMES, parse_target


@dataclass(frozen=True, slots=True)
class NamedCredential:
    """A credential and its name in tool values; a table only stores the name.

    `origin` is the only server that gets it: the scheme, host and port of a URL, or a complete command, for a server
    that the command starts. A second factor, or a password without a username, is sent as a bearer token; a username as
    HTTP Basic.
    """

    name: str
    username: str = ""
    password: str = ""
    second_factor: str = ""
    origin: str = field(kw_only=True)

    def __post_init__(self) -> None:
        if not self.origin.strip():
            raise ConfigError(f"the credential {self.name!r} needs an origin, such as https://crm.example.com")
        object.__setattr__(self, "origin", origin_of(self.origin))

    def __repr__(self) -> str:
        return f"NamedCredential({self.name!r}, origin={self.origin!r})"

    def source_options(self, server: str, *, token_env: str = "") -> dict[str, Any]:
        """Return the options of a source that sends this credential to a server.

        Raise ToolPermissionError if the credential is for another server. A command gets a token in the variable
        `token_env`.
        """
        if (wanted := origin_of(server)) != self.origin:
            msg = f"the credential {self.name!r} is for {self.origin} and is not sent to {wanted}"
            raise ToolPermissionError(f"{msg}; give a credential for that origin", code=CREDENTIAL_ORIGIN)
        token = self.second_factor or ("" if self.username else self.password)
        if not is_url(server):
            return self._command_options(token, token_env)
        if token:
            return {"auth_type": AuthType.BEARER, "auth_config": {"token": token, ORIGIN: self.origin}}
        if self.username:
            login = {"username": self.username, "password": self.password}
            return {"auth_type": AuthType.BASIC, "auth_config": {**login, ORIGIN: self.origin}}
        raise ConfigError(f"the credential {self.name!r} is empty; give it a password, or a username and a password")

    def _command_options(self, token: str, token_env: str) -> dict[str, Any]:
        if not token_env or not token:
            msg = f"the credential {self.name!r} is for a command, which gets a token in a variable"
            remedy = (
                "allow the server as an ExternalToolConfig with auth_config: {token_env: NAME}, and give a password"
            )
            raise ConfigError(f"{msg}; {remedy}")
        return {"auth_type": AuthType.BEARER, "auth_config": {"token": token, "token_env": token_env}}


def is_url(server: str) -> bool:
    """Return whether a server is reached by HTTP."""
    return server.strip().partition("://")[0].lower() in HTTP_SCHEMES


def origin_of(server: str) -> str:
    """Return the scheme, host and port of a URL; a command, a file or a module is its own origin."""
    return parse_target(server.strip()).origin if is_url(server) else server.strip()


def is_same_server(one: str, other: str) -> bool:
    """Return whether two addresses, or two commands, mean the same server."""
    if one.strip() == other.strip():
        return True
    if is_url(one) or is_url(other):
        return is_url(one) and is_url(other) and _address(one) == _address(other)
    try:
        return shlex.split(one) == shlex.split(other)
    except ValueError:  # a quote is not closed
        return False


def _address(url: str) -> tuple[str, ...]:
    parts = urlsplit(url.strip())
    try:
        return (origin_of(url), parts.path or "/", parts.query)
    except ToolPermissionError:  # parsers may interpret it differently
        return (url,)
