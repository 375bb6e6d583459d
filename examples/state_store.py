"""A state store of your own: pauses survive the process, events are saved beside them.

Prints:
paused: external_event
resumed by another planner: answer_complete
saved events: True
"""

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from examples.oauth_pause import Out, oauth_tool
from toolpost.compat.penguiflow import ModelRegistry, RemoteBinding, StoredEvent
from toolpost.compat.penguiflow.catalog import build_catalog
from toolpost.compat.penguiflow.planner import PlannerPause, ReactPlanner
from toolpost.testing import ScriptedModel, tool_calls


class ProductionStateStore:
    """Example implementation on SQLite; docs/extending.md has one on PostgreSQL."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:")
        self.db.execute("CREATE TABLE planner_pauses (token TEXT PRIMARY KEY, payload TEXT)")
        self.events: list[StoredEvent] = []

    async def save_event(self, event: StoredEvent) -> None:
        """Save to the table of events."""
        self.events.append(event)

    async def load_history(self, trace_id: str) -> Sequence[StoredEvent]:
        """Load the events of a run."""
        return [event for event in self.events if event.run_id == trace_id]

    async def save_remote_binding(self, binding: RemoteBinding) -> None:
        """Save a binding; none is made here."""

    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        """Save a pause for a resume elsewhere."""
        self.db.execute("INSERT OR REPLACE INTO planner_pauses VALUES (?, ?)", (token, json.dumps(payload)))

    async def load_planner_state(self, token: str) -> dict[str, Any]:
        """Load a pause; {} when there is none."""
        row = self.db.execute("SELECT payload FROM planner_pauses WHERE token = ?", (token,)).fetchone()
        loaded: dict[str, Any] = json.loads(row[0]) if row else {}
        return loaded


async def main() -> None:
    """Pause in one planner and resume in another that has the same store."""
    registry = ModelRegistry()
    registry.register("oauth_tool", BaseModel, Out)
    catalog = build_catalog([oauth_tool], registry)
    store = ProductionStateStore()
    asking = ScriptedModel(tool_calls(("oauth_tool", {})))
    async with ReactPlanner(asking, catalog=catalog, state_store=store, settings={"data_dir": None}) as planner:
        paused = await planner.run("Call oauth_tool", tool_context={"trace_id": "trace_1"})
        assert isinstance(paused, PlannerPause)  # noqa: S101 - narrows the type
        print("paused:", paused.reason)
    answering = ScriptedModel("Done.")
    async with ReactPlanner(answering, catalog=catalog, state_store=store, settings={"data_dir": None}) as planner:
        result = await planner.resume(paused.resume_token, tool_context={"oauth_ready": True})
        print("resumed by another planner:", result.reason)
    print("saved events:", len(await store.load_history("trace_1")) > 0)
    store.db.close()


if __name__ == "__main__":
    asyncio.run(main())
