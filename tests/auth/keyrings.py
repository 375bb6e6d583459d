"""A keyring of the system that lives as long as a test."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import keyring
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked


class DictKeyring(KeyringBackend):
    """Passwords in a dict; locked on demand."""

    priority: Any = 1
    locked = False

    def __init__(self) -> None:
        self.passwords: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        if self.locked:
            raise KeyringLocked("locked")
        return self.passwords.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.passwords[service, username] = password


@contextmanager
def keyring_of_our_own() -> Generator[DictKeyring]:
    before, ours = keyring.get_keyring(), DictKeyring()
    keyring.set_keyring(ours)
    try:
        yield ours
    finally:
        keyring.set_keyring(before)
