"""A minimal MCP server by hand, so that what a server costs does not hide what a client costs.

`python server.py` speaks on stdio. It knows the handshake of old only; whoever asks for
`server/discover` hears that there is no such method. Standard library only and no neighbours:
clients start this file with an environment that is nearly empty, and some start it for every call.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

PROTOCOL = "2025-06-18"
ECHO = "echo"
HANG = "hang"


class Answers:
    """What the server says to each message, as JSON."""

    def __init__(self, tools: int) -> None:
        listed = {"tools": [tool(number) for number in range(tools)]}
        # A list of thousands is written once, not once a client.
        self._listed = json.dumps(listed, separators=(",", ":"))

    def to(self, message: dict[str, Any]) -> bytes | None:
        """The answer; None to a notification, and to a call that hangs."""
        match message:
            case {"method": "tools/call", "id": number, "params": {"name": name, "arguments": arguments}}:
                return None if name == HANG else _result(number, _echoed(arguments))
            case {"method": "tools/list", "id": number}:
                return f'{{"jsonrpc":"2.0","id":{json.dumps(number)},"result":{self._listed}}}'.encode()
            case {"method": "initialize", "id": number}:
                return _result(number, _welcome())
            case {"method": "ping", "id": number}:
                return _result(number, {})
            case {"method": method, "id": number}:
                return _refusal(number, f"Method not found: {method}")
        return None


def tool(number: int) -> dict[str, Any]:
    """The first tools echo and hang; the others are as wide as those of real servers."""
    if number < 2:
        return _small((ECHO, HANG)[number])
    return {
        "name": f"find_things_{number}",
        "title": f"Find things {number}",
        "description": f"Find the things of kind {number} that match all of the given conditions, newest first.",
        "inputSchema": _schema(number),
        "annotations": {"readOnlyHint": True, "openWorldHint": True},
    }


def _small(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": "Say the message again.",
        "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
        "annotations": {"readOnlyHint": True},
    }


def _schema(number: int) -> dict[str, Any]:
    words = {"type": "array", "items": {"type": "string", "maxLength": 80}, "description": "All of these labels"}
    return {
        "type": "object",
        "properties": {
            f"id_{number}": {"type": "string", "description": f"The id of the thing of kind {number}", "minLength": 1},
            "query": {"type": "string", "description": "Words that the title or the text of a thing must contain"},
            "state": {"type": "string", "enum": ["open", "closed", "all"], "default": "open"},
            "labels": words,
            "sort": {"type": "string", "enum": ["created", "updated", "comments"], "description": "What comes first"},
            "since": {"type": "string", "format": "date-time", "description": "Only things changed after this moment"},
            "page": {"type": "integer", "minimum": 1, "default": 1, "description": "Which page of the answer"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 30, "description": "Things a page"},
            "owner": {"$ref": "#/$defs/owner"},
        },
        "required": [f"id_{number}"],
        "additionalProperties": False,
        "$defs": {"owner": {"type": "object", "properties": {"login": {"type": "string"}}, "required": ["login"]}},
    }


def _welcome() -> dict[str, Any]:
    return {
        "protocolVersion": PROTOCOL,
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "bench", "version": "1"},
    }


def _echoed(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": arguments["message"]}], "isError": False}


def _result(number: Any, result: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}, separators=(",", ":")).encode()


def _refusal(number: Any, why: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": why}}).encode()


def on_stdio(answers: Answers) -> None:
    """Answer line by line until the lines end."""
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        answer = answers.to(json.loads(line))
        if answer is not None:
            out.write(answer + b"\n")
            out.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=2, help="how many tools there are")
    parser.add_argument("--mark", help="nothing but a word to find this process by")
    on_stdio(Answers(parser.parse_args().tools))


if __name__ == "__main__":
    main()
