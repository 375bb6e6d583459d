"""Penguiflow's own ReactPlanner over the catalog of a Toolbox, in a separate environment."""

import asyncio

from penguiflow.planner import ReactPlanner

from bench.peers.penguiflow_planner import Scripted, specs_of
from bench.planner.names import QUESTION
from tests.agents.peers.catalog import WISHES, drive, text_of
from toolpost import Toolbox


async def run(box: Toolbox) -> str:
    result = await ReactPlanner(llm_client=Scripted(WISHES), catalog=specs_of(box, text_of)).run(QUESTION)
    return str(result.payload["raw_answer"])


if __name__ == "__main__":
    asyncio.run(drive(run))
