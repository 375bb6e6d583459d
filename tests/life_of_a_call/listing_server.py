"""An MCP server whose tools are those of a JSON file, read at every listing; calling `announce` tells of a change."""

import json
import sys
from pathlib import Path
from typing import Any


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            told = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "l", "version": "1"}}
            return {"protocolVersion": params["protocolVersion"], **told}
        case "tools/list":
            return {"tools": json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"ran {params['name']}"}]}
    return None


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = result_of(message["method"], message.get("params") or {})
            say(id=message["id"], **({"result": result} if result else {"error": {"code": -32601, "message": "no"}}))
            if message["method"] == "tools/call" and message["params"]["name"] == "announce":
                say(method="notifications/tools/list_changed")


if __name__ == "__main__":
    main()
