"""The state store of a database without a Toolbox, for planners of other libraries."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from toolpost.configuration.settings import Settings
from toolpost.contracts.storage import PlannerStates
from toolpost.stores.registry import find_backend
from toolpost.toolbox.wiring import store_options


@asynccontextmanager
async def open_state_store(settings: Settings) -> AsyncGenerator[PlannerStates]:
    """Open the planner state in the database of the settings, without a Toolbox.

    Any number of processes can share it. A pause is stored encrypted, under the hash of its token, and exactly one
    process can claim it. If that process ends, another can.
    """
    options = store_options(settings)
    store = await find_backend(options.database).open(options)
    try:
        yield store.state
    finally:
        await store.close()
