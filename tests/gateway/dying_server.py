"""An MCP server by hand that dies in the middle of a listing, once, and has one more tool when it is started again."""

import json
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(sys.argv[1])
DYING, GROWN = HERE / "dying", HERE / "grown"


def tools() -> list[dict[str, Any]]:
    names = ["grow", "rest", *(["bloom"] if GROWN.exists() else [])]
    return [{"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}} for name in names]


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            about = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "dying", "version": "1"}}
            return {"protocolVersion": params["protocolVersion"], **about}
        case "tools/list":
            return {"tools": tools()}
        case "tools/call":
            return {"content": [{"type": "text", "text": params["name"]}]}
        case _:
            return None


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "tools/list" and DYING.exists():
        DYING.unlink()
        GROWN.touch()
        print('{"jsonrpc": "2.0", "id": ', end="", flush=True)
        os._exit(1)
    told = result_of(asked["method"], asked.get("params") or {})
    send({"id": asked["id"], **({"result": told} if told else {"error": {"code": -32601, "message": "not here"}})})
    if asked["method"] == "tools/call" and asked["params"]["name"] == "grow":
        DYING.touch()
        send({"method": "notifications/tools/list_changed"})
