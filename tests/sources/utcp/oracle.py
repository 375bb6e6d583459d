"""Calls tools by the packages of UTCP itself, in the environment that has them; its answer is one JSON document."""

import asyncio
import json
import logging
import sys
from typing import Any

from utcp.utcp_client import UtcpClient  # type: ignore[import-not-found]


async def answers(asked: dict[str, Any]) -> dict[str, Any]:
    client = await UtcpClient.create(config=asked["config"])
    tools = await client.config.tool_repository.get_tools()
    return {
        "tools": sorted(tool.name for tool in tools),
        "answers": [await answer(client, name, arguments) for name, arguments in asked["calls"]],
    }


async def answer(client: Any, name: str, arguments: dict[str, Any]) -> Any:
    try:
        result = await client.call_tool(name, arguments)
    except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
        return {"raised": type(error).__name__, "text": str(error)}
    return {"bytes": result.decode("latin-1")} if isinstance(result, bytes) else result


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(json.dumps(asyncio.run(answers(json.load(sys.stdin)))))
