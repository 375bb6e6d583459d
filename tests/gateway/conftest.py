"""A gateway with two tools, for tests that need no others."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.serving import Served, add, drop, served


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "data", [add, drop]) as gate:
        yield gate
