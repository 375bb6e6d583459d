"""Tokens as small as the vault lets them be, and vaults of them over every store."""

import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from toolpost.auth.seal import FileSealer
from toolpost.auth.secret import Secret, revealed
from toolpost.auth.vault import Vault
from toolpost.contracts.tokens import TokenKey
from toolpost.stores.memory import MemoryStore
from toolpost.stores.sqlite import SQLiteStore, open_sqlite_store

KEY = TokenKey("acme", "ann", "https://issuer.example", "https://api.example", "client-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """An access token that ends, and what renews it."""

    access_token: Secret
    refresh_token: Secret | None = None
    expires_at: float = 2000.0

    @property
    def secrets(self) -> set[str]:
        return revealed([self.access_token, *([self.refresh_token] if self.refresh_token else [])])

    def is_fresh(self, now: float) -> bool:
        return now < self.expires_at


def grant(number: int = 1, *, renewable: bool = True, expires_at: float = 2000.0) -> Grant:
    refresh = Secret(f"canary-refresh-{number}") if renewable else None
    return Grant(access_token=Secret(f"canary-access-{number}"), refresh_token=refresh, expires_at=expires_at)


def pack(tokens: Grant) -> bytes:
    refresh = tokens.refresh_token.reveal() if tokens.refresh_token else None
    return json.dumps([tokens.access_token.reveal(), refresh, tokens.expires_at]).join(('{"grant":', "}")).encode()


def unpack(data: bytes) -> Grant:
    access, refresh, expires_at = json.loads(data)["grant"]
    return Grant(access_token=Secret(access), refresh_token=refresh and Secret(refresh), expires_at=expires_at)


def vault_over(
    store: SQLiteStore | MemoryStore,
    *,
    learn: Callable[[set[str]], None] | None = None,
    clock: Callable[[], float] = time.time,
) -> Vault[Grant]:
    return Vault(store.tokens, pack=pack, unpack=unpack, learn=learn, clock=clock)


@asynccontextmanager
async def store_of(kind: str, folder: Path, clock: Callable[[], float]) -> AsyncGenerator[SQLiteStore | MemoryStore]:
    """The store on disk or in memory."""
    if kind == "memory":
        async with MemoryStore(clock=clock) as in_memory:
            yield in_memory
        return
    async with open_sqlite_store(folder, sealer=FileSealer(folder / "key"), clock=clock) as on_disk:
        yield on_disk
