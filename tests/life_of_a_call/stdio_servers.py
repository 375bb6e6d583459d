"""A small MCP server on stdin and stdout, as a team writes one of its own: it joins texts."""

import json
import os
import sys
from typing import Any


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        about = {"name": "custom", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"texts": {"type": "array", "items": {"type": "string"}}}}
        return {"tools": [{"name": "summarize", "inputSchema": schema, "annotations": {"readOnlyHint": True}}]}
    if method == "tools/call":
        result = {"result": " ".join(params["arguments"]["texts"]), "pid": os.getpid()}
        return {"content": [{"type": "text", "text": json.dumps(result)}], "structuredContent": result}
    return {} if method == "ping" else None


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer(request["method"], request.get("params") or {})
        error = {"error": {"code": -32601, "message": "Method not found"}}
        body = error if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}), flush=True)


if __name__ == "__main__":
    main()
