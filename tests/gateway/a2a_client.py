"""The client of the A2A SDK, beside the SDK alone: `a2a_client.py ADDRESS BEARER`; prints what it saw as JSON."""

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import ClientConfig, ClientFactory
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
)
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value


def asking(tool: str, arguments: dict[str, Any], task_id: str = "") -> SendMessageRequest:
    data = ParseDict({"tool": tool, "arguments": arguments}, Value())
    parts = [Part(data=data)]
    message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=parts, task_id=task_id)
    return SendMessageRequest(message=message)


async def answers(client: Any, request: SendMessageRequest) -> list[dict[str, Any]]:
    return [MessageToDict(event) async for event in client.send_message(request)]


async def main(address: str, bearer: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {bearer}"}, timeout=30, trust_env=False) as http:
        waiting = await ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create_from_url(address)
        seen["called"] = await answers(waiting, asking("add", {"a": 2, "b": 3}))
        seen["paused"] = await answers(waiting, asking("drop", {"name": "t"}))
        paused = seen["paused"][-1]["task"]["id"]
        try:
            await answers(waiting, asking("drop", {"name": "t"}, paused))
        except A2AError as error:
            seen["approved"] = type(error).__name__
        seen["found"] = MessageToDict(await waiting.get_task(GetTaskRequest(id=paused)))
        seen["cancelled"] = MessageToDict(await waiting.cancel_task(CancelTaskRequest(id=paused)))
        card = await waiting.get_extended_agent_card(GetExtendedAgentCardRequest())
        seen["skills"] = [skill.id for skill in card.skills]
        streaming = await ClientFactory(ClientConfig(httpx_client=http, streaming=True)).create_from_url(address)
        seen["streamed"] = await answers(streaming, asking("add", {"a": 20, "b": 22}))
    return seen


print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
