"""Proof that the program on a port is the gateway of a data folder, for a command that signs in there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MAC = "gateway identity"


def prove_identity(mac: Callable[[str, bytes], bytes], challenge: str, port: int) -> str:
    """Return a MAC with the key of the store (`Store.mac`), in hex.

    It covers the port: a program that passes the challenge on to the gateway on another port gets a wrong proof.
    """
    return mac(_MAC, f"{port} {challenge}".encode()).hex()
