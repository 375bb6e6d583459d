"""The stores under test: what both promise is tested on both."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolpost.auth.keys import FileCipher
from toolpost.contracts.clock import Clock
from toolpost.stores.memory.store import MemoryStore
from toolpost.stores.sqlite.store import SQLiteStore, open_sqlite_store

AnyStore = SQLiteStore | MemoryStore
NOW = 1000.0


def open_store(folder: Path, **options: Any) -> SQLiteStore:
    return open_sqlite_store(folder, cipher=FileCipher(folder / "key"), clock=Clock(wall=lambda: NOW), **options)


@pytest.fixture(params=["sqlite", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AnyStore]:
    opened: AnyStore = open_store(tmp_path) if request.param == "sqlite" else MemoryStore(clock=Clock(wall=lambda: NOW))
    async with opened:
        yield opened


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    async with open_store(tmp_path) as opened:
        yield opened
