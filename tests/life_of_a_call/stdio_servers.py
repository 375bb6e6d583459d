"""A small MCP server on stdin and stdout: web search, page reader, knowledge base or another, by its name."""

import json
import os
import sys
from typing import Any

PAGES = {"https://example.com/otters": "Otters hold hands while they sleep."}
NOTES = ["Otters live in rivers.", "Owls hunt at night."]
TOOLS = {
    "brave-search": ("web_search", {"query": {"type": "string"}}),
    "jina-reader": ("read_url", {"url": {"type": "string"}}),
    "kb": ("retrieve", {"query": {"type": "string"}, "k": {"type": "integer"}}),
    "custom": ("summarize", {"texts": {"type": "array", "items": {"type": "string"}}}),
}


def call(server: str, given: dict[str, Any]) -> Any:
    match server:
        case "brave-search":
            return [url for url in PAGES if given["query"] in url]
        case "jina-reader":
            return PAGES[given["url"]]
        case "kb":
            return [note for note in NOTES if given["query"].lower() in note.lower()][: given.get("k", 3)]
        case _:
            return " ".join(given["texts"])


def answer(server: str, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    name, properties = TOOLS[server]
    if method == "initialize":
        about = {"name": server, "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        schema = {"type": "object", "properties": properties}
        return {"tools": [{"name": name, "inputSchema": schema, "annotations": {"readOnlyHint": True}}]}
    if method == "tools/call":
        result = {"result": call(server, params["arguments"]), "pid": os.getpid()}
        return {"content": [{"type": "text", "text": json.dumps(result)}], "structuredContent": result}
    return {} if method == "ping" else None


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer(sys.argv[1], request["method"], request.get("params") or {})
        error = {"error": {"code": -32601, "message": "Method not found"}}
        body = error if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}), flush=True)


if __name__ == "__main__":
    main()
