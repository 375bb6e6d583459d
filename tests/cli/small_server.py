"""A small MCP server by hand, which the tests start as a program: with the standard library alone it starts at once."""

import json
import os
import sys
from typing import Any

TEXT = {"type": "string"}
TOOLS = [
    {
        "name": "greet",
        "description": "Greet someone.",
        "inputSchema": {"type": "object", "properties": {"name": TEXT}, "required": ["name"]},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "has_token",
        "description": "Tell whether the token came through.",
        "inputSchema": {"type": "object", "properties": {}},
    },
]


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            info, version = {"name": "small", "version": "1"}, params["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return {"content": [{"type": "text", "text": called(params["name"], params.get("arguments") or {})}]}
    return None


def called(name: str, arguments: dict[str, Any]) -> str:
    if name == "greet":
        return f"Hello, {arguments['name']}!"
    return json.dumps(os.environ.get("SMALL_TOKEN") == "s3cret-of-the-small-one")


def main() -> None:
    if os.environ.get("SMALL_TOKEN", "").startswith("wrong"):
        raise SystemExit(f"refused: {os.environ['SMALL_TOKEN']}")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = result_of(message["method"], message.get("params") or {})
            said = {"result": result} if result else {"error": {"code": -32601, "message": "Method not found"}}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)


if __name__ == "__main__":
    main()
