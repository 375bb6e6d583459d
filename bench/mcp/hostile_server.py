"""An MCP server that floods its client: `python hostile_server.py 1000000` on stdio, with so many of each.

Standard library only, no neighbours.
"""

from __future__ import annotations

import json
import sys
from typing import Any

PROTOCOL = "2025-06-18"
TOOLS = ("objects", "text", "parts", "deep", "requests", "notifications")
COUNT = int(sys.argv[1])


def answer(message: dict[str, Any]) -> bytes | None:
    """The answer to a message, with everything that is written before it."""
    match message:
        case {"method": "tools/call", "id": number, "params": {"name": name}}:
            return _flood(name) + _line({"id": number, "result": _MARK}).replace(b'"MARK"', _result(name))
        case {"method": "tools/list", "id": number}:
            listed = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            return _line({"id": number, "result": {"tools": listed}})
        case {"method": "initialize", "id": number}:
            return _line({"id": number, "result": _welcome()})
        case {"method": method, "id": number}:
            return _line({"id": number, "error": {"code": -32601, "message": f"Method not found: {method}"}})
        case _:
            return None


def _flood(name: str) -> bytes:
    if name == "requests":
        return b"".join(_line({"id": f"r{number}", "method": "roots/list"}) for number in range(COUNT))
    if name == "notifications":
        params = {"level": "info", "data": "on and on"}
        return _line({"method": "notifications/message", "params": params}) * COUNT
    return b""


def _result(name: str) -> bytes:
    if name == "objects":
        return b'{"content":[],"structuredContent":{"items":[' + b",".join([b"{}"] * COUNT) + b"]}}"
    if name == "deep":
        return b'{"content":[],"structuredContent":{"items":' + b"[" * COUNT + b"]" * COUNT + b"}}"
    if name == "text":
        return b'{"content":[{"type":"text","text":"[' + b",".join([b"{}"] * COUNT) + b']"}]}'
    if name == "parts":
        return b'{"content":[' + b",".join([b'{"type":"text","text":""}'] * COUNT) + b"]}"
    return b'{"content":[{"type":"text","text":"done"}]}'


def _welcome() -> dict[str, Any]:
    return {
        "protocolVersion": PROTOCOL,
        "capabilities": {"tools": {}, "logging": {}},
        "serverInfo": {"name": "hostile", "version": "1"},
    }


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"


_MARK = "MARK"


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "method" in message and (given := answer(message)) is not None:
            sys.stdout.buffer.write(given)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
