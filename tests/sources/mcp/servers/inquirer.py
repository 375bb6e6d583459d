"""An MCP server of both eras that asks back: for a person's input, a model's words, the client's folders.

It writes a line to the file in LEDGER whenever a booking really takes place.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ToolsListChanged,
)

BUS = InMemorySubscriptionBus()
ASKING = ("book", "consult", "where", "visit", "toll", "nag", "idle", "delete")
TOOLS = [*ASKING, "grow", "shrink"]
LIBRARY: dict[str, list[Any]] = {"resources": [], "prompts": []}
NAME = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "guests": {"type": "integer", "default": 2}},
    "required": ["name", "guests"],
}
SEAT = {"type": "object", "properties": {"seat": {"enum": ["aisle", "window"]}}, "required": ["seat"]}


def said(text: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=str(text))])


def form(message: str, schema: dict[str, Any]) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def note(line: str) -> None:
    if ledger := os.environ.get("LEDGER"):
        with Path(ledger).open("a") as file:
            file.write(line + "\n")


class Modern:
    """The stateless protocol: what is known so far travels in the state."""

    async def book(self, params: types.CallToolRequestParams) -> Any:
        state = json.loads(params.request_state or "{}")
        replies = params.input_responses or {}
        for key, reply in replies.items():
            if reply.action != "accept":  # type: ignore[union-attr]
                return said(f"no booking: {reply.action}")  # type: ignore[union-attr]
            state[key] = reply.content  # type: ignore[union-attr]
        if "who" not in state:
            return self.needs({"who": form("Who travels?", NAME)}, state)
        if "seat" not in state:
            return self.needs({"seat": form("Which seat?", SEAT)}, state)
        note(json.dumps(state))
        return said(json.dumps(state))

    async def consult(self, params: types.CallToolRequestParams) -> Any:
        if params.input_responses:
            return said(params.input_responses["words"].content.text)  # type: ignore[union-attr]
        return self.needs({"words": types.CreateMessageRequest(params=QUESTION)}, {})

    async def where(self, params: types.CallToolRequestParams) -> Any:
        if params.input_responses:
            return said([str(root.uri) for root in params.input_responses["roots"].roots])  # type: ignore[union-attr]
        return self.needs({"roots": types.ListRootsRequest()}, {})

    async def visit(self, params: types.CallToolRequestParams) -> Any:
        if params.input_responses:
            return said(params.input_responses["page"].action)  # type: ignore[union-attr]
        page = types.ElicitRequestURLParams(message="Please pay", url=PAGE, elicitation_id="e1")
        return self.needs({"page": types.ElicitRequest(params=page)}, {})

    def needs(self, requests: dict[str, Any], state: dict[str, Any]) -> types.InputRequiredResult:
        return types.InputRequiredResult(input_requests=requests, request_state=json.dumps(state))


PAGE = os.environ.get("PAGE", "https://example.com/pay")
QUESTION = types.CreateMessageRequestParams(
    messages=[types.SamplingMessage(role="user", content=types.TextContent(type="text", text="How are you?"))],
    max_tokens=10,
)


PAID: list[str] = []
NAGS: list[Any] = []
SOMEBODY_ELSE = asyncio.Event()


async def toll(params: types.CallToolRequestParams) -> Any:
    """Refuse once until a page has been visited, then do it."""
    if not PAID:
        PAID.append("visited")
        page = {"mode": "url", "message": "Pay first", "url": PAGE, "elicitationId": "e2"}
        raise MCPError(code=-32042, message="a page must be visited first", data={"elicitations": [page]})
    note("toll")
    return said("passed")


class Legacy:
    """The older protocol: the call stays open while the client is asked."""

    def __init__(self, session: Any) -> None:
        self.session = session

    async def book(self, params: types.CallToolRequestParams) -> Any:
        known: dict[str, Any] = {}
        for key, message, schema in (("who", "Who travels?", NAME), ("seat", "Which seat?", SEAT)):
            try:
                reply = await self.session.elicit_form(message, schema)
            except asyncio.CancelledError:
                note("cancelled")
                raise
            if reply.action != "accept":
                return said(f"no booking: {reply.action}")
            known[key] = reply.content
        note(json.dumps(known))
        return said(json.dumps(known))

    async def nag(self, params: types.CallToolRequestParams) -> Any:
        """Ask when somebody else calls, whatever has become of the call by then."""
        NAGS.append(asyncio.create_task(self.ask_later()))
        await asyncio.sleep(60)

    async def ask_later(self) -> None:
        await SOMEBODY_ELSE.wait()
        reply = await self.session.elicit_form("Confirm the transfer?", SEAT)
        note(f"nagged: {reply.action}")

    async def idle(self, params: types.CallToolRequestParams) -> Any:
        SOMEBODY_ELSE.set()
        await asyncio.gather(*NAGS)
        return said("waited")

    async def delete(self, params: types.CallToolRequestParams) -> Any:
        reply = await self.session.elicit_form(f"Delete {os.environ['VICTIM']}?", {"type": "object", "properties": {}})
        note(f"{os.environ['VICTIM']}: {reply.action}")
        return said("done")

    async def consult(self, params: types.CallToolRequestParams) -> Any:
        reply = await self.session.create_message(messages=QUESTION.messages, max_tokens=10)
        return said(reply.content.text)

    async def where(self, params: types.CallToolRequestParams) -> Any:
        return said([str(root.uri) for root in (await self.session.list_roots()).roots])

    async def visit(self, params: types.CallToolRequestParams) -> Any:
        return said((await self.session.elicit_url("Please pay", PAGE, "e1")).action)


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    ttl = int(os.environ.get("TTL_MS", "0"))
    safe = types.ToolAnnotations(idempotent_hint=True) if os.environ.get("SAFE") else None
    tools = [types.Tool(name=name, input_schema={"type": "object"}, annotations=safe) for name in TOOLS]
    return types.ListToolsResult(tools=tools, ttl_ms=ttl, cache_scope="private")


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> Any:
    match params.name:
        case "grow":
            TOOLS.append(str((params.arguments or {})["name"]))
        case "publish":
            return await publish(ctx)
        case "shrink":
            TOOLS.remove(str((params.arguments or {})["name"]))
        case _:
            era: Any = Modern() if ctx.protocol_version >= "2026" else Legacy(ctx.session)
            if params.name == "toll":
                return await toll(params)
            return await getattr(era, params.name)(params) if params.name in ASKING else said("done")
    if not os.environ.get("SILENT"):
        await BUS.publish(ToolsListChanged())
        if ctx.protocol_version < "2026":
            await ctx.session.send_tool_list_changed()
    return said(TOOLS)


async def list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=LIBRARY["resources"])


async def list_prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=LIBRARY["prompts"])


async def publish(ctx: Any) -> types.CallToolResult:
    """Have a first resource and a first prompt from now on."""
    LIBRARY["resources"].append(types.Resource(name="one", uri="note://one"))
    LIBRARY["prompts"].append(types.Prompt(name="greet"))
    for event in (ResourcesListChanged(), PromptsListChanged()):
        await BUS.publish(event)
    if ctx.protocol_version < "2026":
        await ctx.session.send_resource_list_changed()
    return said("published")


async def main() -> None:
    listening = None if os.environ.get("SILENT") else ListenHandler(BUS)
    library: dict[str, Any] = {"on_list_resources": list_resources, "on_list_prompts": list_prompts}
    has_library = bool(os.environ.get("LIBRARY"))
    server: Server[Any] = Server(
        "inquirer",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=listening,
        **(library if has_library else {}),
    )
    changes = NotificationOptions(
        tools_changed=listening is not None, resources_changed=has_library, prompts_changed=has_library
    )
    options = server.create_initialization_options(changes)
    async with stdio_server() as (read, write):
        await server.run(read, write, options)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
