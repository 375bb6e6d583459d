"""Who a call is for: a user within a tenant."""

from __future__ import annotations

from typing import NamedTuple

LOCAL_TENANT = "local"


class Principal(NamedTuple):
    """A person or service; written `tenant:user`."""

    tenant: str
    user: str

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Read `tenant:user`; a name without a tenant belongs to the local one."""
        tenant, colon, user = text.partition(":")
        if not colon:
            tenant, user = LOCAL_TENANT, text
        if not tenant or not user or not _is_whole(text):
            msg = f"user {text!r} is not of the form 'tenant:user'"
            raise ValueError(msg)
        return cls(tenant, user)

    def __str__(self) -> str:
        return f"{self.tenant}:{self.user}"


def _is_whole(text: str) -> bool:
    """Half a character, as odd bytes on a command line become, can be neither kept nor shown."""
    return text.isascii() or text == text.encode("utf-8", "replace").decode()
