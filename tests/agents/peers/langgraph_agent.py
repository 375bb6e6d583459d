"""LangGraph's prebuilt agent over the catalog of a Toolbox."""

import asyncio

from langgraph.prebuilt import create_react_agent

from bench.peers.langgraph_agent import Scripted, tools_of
from bench.planner.names import QUESTION
from tests.agents.peers.catalog import WISHES, drive, text_of
from toolpost import Toolbox


async def run(box: Toolbox) -> str:
    agent = create_react_agent(Scripted(wishes=WISHES), tools_of(box, text_of))
    said = await agent.ainvoke({"messages": [{"role": "user", "content": QUESTION}]})
    return str(said["messages"][-1].content)


if __name__ == "__main__":
    asyncio.run(drive(run))
