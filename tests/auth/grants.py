"""Token sets, and vaults of them over every store."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from toolpost.auth.keys import FileCipher
from toolpost.auth.oauth.tokens import TokenSet
from toolpost.auth.secret import Secret
from toolpost.auth.vault import Vault
from toolpost.contracts.clock import Clock
from toolpost.contracts.storage import TokenKey
from toolpost.stores.memory.store import MemoryStore
from toolpost.stores.sqlite.store import SQLiteStore, open_sqlite_store

KEY = TokenKey("acme", "ann", "https://issuer.example", "https://api.example", "client-1")


def grant(number: int = 1, *, renewable: bool = True, expires_at: float = 2000.0) -> TokenSet:
    refresh = Secret(f"canary-refresh-{number}") if renewable else None
    return TokenSet(access_token=Secret(f"canary-access-{number}"), refresh_token=refresh, expires_at=expires_at)


def vault_over(
    store: SQLiteStore | MemoryStore,
    *,
    learn: Callable[[set[str]], None] | None = None,
    clock: Callable[[], float] = time.time,
) -> Vault:
    return Vault(store.tokens, learn=learn, clock=clock)


@asynccontextmanager
async def store_of(kind: str, folder: Path, clock: Callable[[], float]) -> AsyncGenerator[SQLiteStore | MemoryStore]:
    """The store on disk or in memory."""
    if kind == "memory":
        async with MemoryStore(clock=Clock(wall=clock)) as in_memory:
            yield in_memory
        return
    async with open_sqlite_store(folder, cipher=FileCipher(folder / "key"), clock=Clock(wall=clock)) as on_disk:
        yield on_disk
