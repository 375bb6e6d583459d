"""A small MCP server on stdin and stdout, with the standard library alone: its argument is its tools, as JSON."""

import json
import sys
from typing import Any

TOOLS = json.loads(sys.argv[1])


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            info, version = {"name": "small", "version": "1"}, params["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            if params["name"] == "wait":  # for ever: nobody sends another line before they leave
                sys.stdin.readline()
            said = f"{params['name']} got {json.dumps(params.get('arguments') or {})}"
            return {"content": [{"type": "text", "text": said}], "isError": params["name"] == "fail"}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = result_of(message["method"], message.get("params") or {})
        said = {"result": result} if result else {"error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
