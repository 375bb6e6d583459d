"""Events around every call, and a destructive call that waits for a person.

Prints:
TOOL_CALL_STARTED web.scrape
TOOL_CALL_COMPLETED web.scrape
TOOL_CALL_STARTED web.scrape
TOOL_CALL_FAILED web.scrape
APPROVAL_REQUESTED records.delete
waits: approval
TOOL_CALL_STARTED records.delete
TOOL_CALL_COMPLETED records.delete
approved: deleted 7
"""

import asyncio

from toolpost import Completed, EventBus, EventCode, Paused, Settings, Toolbox, tool

SHOWN = {
    *(EventCode.TOOL_CALL_STARTED, EventCode.TOOL_CALL_COMPLETED, EventCode.TOOL_CALL_FAILED),
    EventCode.APPROVAL_REQUESTED,
}


@tool(name="web.scrape", side_effects="read")
async def scrape(url: str) -> str:
    """Read a public web page."""
    if "127.0.0.1" in url:
        raise PermissionError(url)
    return "# A page"


@tool(name="records.delete", side_effects="write", destructive=True)
async def delete(number: int) -> str:
    """Delete a record."""
    return f"deleted {number}"


async def main() -> None:
    """Scrape, be refused, delete and approve."""
    bus = EventBus()
    async with Toolbox(tools=[scrape, delete], sinks=[bus], settings=Settings(data_dir=None)) as box:
        bus.subscribe(None, lambda event: print(event.code.name, event.call.tool_name) if event.code in SHOWN else None)
        await box.call("web.scrape", {"url": "https://example.com"})
        await box.call("web.scrape", {"url": "http://127.0.0.1/admin"})
        asked = await box.call("records.delete", {"number": 7}, user="acme:bot")
        if isinstance(asked, Paused):
            print("waits:", asked.question.kind)
            done = await box.pending.answer(asked.pending_id, decision="approve", by="acme:ann")
            if isinstance(done, Completed):
                print("approved:", done.content)


if __name__ == "__main__":
    asyncio.run(main())
