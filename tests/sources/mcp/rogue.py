"""An MCP server that misbehaves as told, over standard input and output, made of the standard library alone.

Its plan is a JSON file that is read anew for every message, so that a test can change the server's mind:

    era      "legacy" (initialize, the default) or "modern" (2026-07-28, stateless)
    version  the only one of the legacy era that it speaks, where it is so choosy
    modes    "exit" at once, "mute" to all requests, "deaf" to tools/list alone, "garbage" between messages,
             "flood" stderr, "stubborn" about ending, "haunted" by a child that keeps the pipes open,
             "prim" about being greeted first
    tools    what tools/list tells, each with what the server does under "do" (see `Rogue.carry_out`)
    page     how many tools a page of tools/list holds; "cursor" is "same" or "new" to never end
    ready_s  how long the server takes before it reads anything
    listens  True when it grants subscriptions to changes, each of which it ends at once; "not" when it only says so

Everything received goes to a log of JSON lines that outlives the process.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Message = dict[str, Any]
MODERN = "2026-07-28"
NEWEST_LEGACY = "2025-11-25"
DYING_WORDS = "rogue: the licence file is missing"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
LOG_LINE: Message = {"method": "notifications/message", "params": {"level": "info", "data": "in a batch"}}
LONGEST_HANG_S = 120.0
_PATTERN = "0123456789 every line differs, so that a lost piece shows "
_GARBAGE = b"""Listening on port 8080
\xff\xfe\x00 this is not UTF-8 \xc3

{broken json
[1, 2, 3]
"text"
null
{"jsonrpc": "2.0", "method": "notifications/unheard_of", "params": {"level": 7}}
{"jsonrpc": "2.0", "id": 987654, "result": {"nobody": "asked"}}
{"jsonrpc": "2.0", "id": {"no": "id"}, "result": 5}
{"jsonrpc": "2.0", "id": "\xff\xfe", "result": {}}
{"jsonrpc": "2.0", "id": %s, "result": 5}
""" % (b"9" * 400)


def filler(size: int) -> str:
    """A text of that many characters, the same in the server and in the test."""
    lines = (f"{number:010d}{_PATTERN}\n" for number in range(size // (len(_PATTERN) + 11) + 1))
    return "".join(lines)[:size]


class Rogue:
    """What the server knows and says, whatever carries its messages."""

    def __init__(self, plan: Path, log: Path, modes: list[str]) -> None:
        self.instance = uuid.uuid4().hex
        self.cancelled: set[Any] = set()
        self._path = plan
        self._version = (-1, -1)
        self._known: dict[str, Any] = {}
        self._log = log
        self._modes = modes
        self._methods: dict[str, Callable[[Message], Message]] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "tools/list": self._list_tools,
            "ping": lambda _message: {},
        }

    @property
    def plan(self) -> dict[str, Any]:
        """What the file says now; it is always replaced as a whole."""
        file = self._path.stat() if self._path.exists() else None
        version = (file.st_ino, file.st_mtime_ns) if file else (0, 0)
        if version != self._version:
            plan = {"era": "legacy", "tools": [], "modes": [], **(json.loads(self._path.read_bytes()) if file else {})}
            self._known, self._version = {**plan, "modes": [*plan["modes"], *self._modes]}, version
        return self._known

    def note(self, message: Message, **facts: Any) -> None:
        """Write down what came in."""
        entry = {"pid": os.getpid(), "instance": self.instance, "at": time.time(), **facts, **message}
        line = json.dumps(entry).encode() + b"\n"
        handle = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, line)
        os.close(handle)

    def times_run(self, tool: str) -> int:
        """How often a tool was run, by this process and those before it."""
        entries = (json.loads(line) for line in self._log.read_bytes().splitlines())
        return sum(entry.get("method") == "(ran)" and entry["params"]["name"] == tool for entry in entries)

    def what_to_do(self, message: Message) -> dict[str, Any] | None:
        """The plan for one call, which counts as run from here on; None when there is no such tool."""
        name = message["params"]["name"]
        do = next((tool.get("do") or {} for tool in self.plan["tools"] if tool.get("name") == name), None)
        if do is None:
            return None
        self.note({"method": "(ran)", "params": message["params"]})
        return do.get("then", {}) if "first" in do and self.times_run(name) > do["first"] else do

    def answers(self, message: Message, gone: Callable[[], bool] = lambda: False) -> Iterator[bytes]:
        """What the server sends back for one message; a call may never return from here."""
        method, asked = message.get("method"), "id" in message
        if method == "notifications/cancelled":
            self.cancelled.add(message["params"]["requestId"])
        if not asked or (self._is_silent(str(method)) and self._wait(LONGEST_HANG_S, message, gone)):
            return
        if method == "tools/call":
            yield from self._call(message, gone)
        elif method == "subscriptions/listen" and self.plan.get("listens") is True:
            granted = {"_meta": {SUBSCRIPTION: message["id"]}, "notifications": {"toolsListChanged": True}}
            yield encoded({"method": "notifications/subscriptions/acknowledged", "params": granted})
            yield encoded({"id": message["id"], "result": {"resultType": "complete"}})
        elif method in self._methods:
            answer = self._methods[str(method)](message)
            yield encoded({"id": message["id"], **(answer if "error" in answer else {"result": self._full(answer)})})
        else:
            yield encoded({"id": message["id"], "error": {"code": -32601, "message": f"Method not found: {method}"}})

    def _is_silent(self, method: str) -> bool:
        modes = self.plan["modes"]
        return "mute" in modes or ("deaf" in modes and method == "tools/list")

    def _full(self, result: Message) -> Message:
        if self.plan["era"] == "legacy":
            return result
        return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}

    def _initialize(self, message: Message) -> Message:
        if self.plan["era"] == "modern":
            return {"error": {"code": -32022, "message": "Unsupported version", "data": {"supported": [MODERN]}}}
        version = self.plan.get("version") or message["params"].get("protocolVersion", NEWEST_LEGACY)
        return {
            "protocolVersion": version,
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": self._info(),
        }

    def _discover(self, _message: Message) -> Message:
        if self.plan["era"] == "legacy":
            return {"error": {"code": -32601, "message": "Method not found: server/discover"}}
        tools = {"listChanged": bool(self.plan.get("listens"))}
        return {"supportedVersions": [MODERN], "capabilities": {"tools": tools}, "serverInfo": self._info()}

    def _info(self) -> Message:
        return {"name": "rogue", "version": self.instance[:8]}

    def _list_tools(self, message: Message) -> Message:
        plan = self.plan
        tools = [{key: value for key, value in tool.items() if key != "do"} for tool in plan["tools"]]
        cursor = int((message.get("params") or {}).get("cursor") or 0)
        if plan.get("cursor") == "same":
            return {"tools": tools, "nextCursor": "1"}
        if plan.get("cursor") == "new":
            schema = {"type": "object"}
            return {"tools": [{"name": f"page_{cursor}", "inputSchema": schema}], "nextCursor": str(cursor + 1)}
        page = plan.get("page") or len(tools) or 1
        more = {"nextCursor": str(cursor + page)} if cursor + page < len(tools) else {}
        return {"tools": tools[cursor : cursor + page], **more}

    def _call(self, message: Message, gone: Callable[[], bool]) -> Iterator[bytes]:
        do = self.what_to_do(message)
        if do is None:
            yield encoded({"id": message["id"], "error": {"code": -32602, "message": "Unknown tool"}})
        else:
            yield from self.carry_out(do, message, gone)

    def carry_out(self, do: dict[str, Any], message: Message, gone: Callable[[], bool]) -> Iterator[bytes]:
        """Do what the plan says for one call: by default, answer with what the server received.

        sleep    wait so many seconds first        exit      end the process with this code instead
        half     send half an answer before that   hang      never answer
        error    a JSON-RPC error                  result    a CallToolResult as it stands
        bytes    a text of that size               id_last   put the answer's id at its end
        wrong_id answer under another id           first     all of this only so many times, and `then` that
        drop     no answer, the connection ends    before    messages to send before the answer
        times    answer so often                   late      answer although the call was taken back
        frame    members to put into the answer    batch     answer in a list, after something to log
        progress numbers to report before that, each with its total
        """
        token = (message["params"].get("_meta") or {}).get("progressToken")
        for progress, total in do.get("progress", []):
            params = {"progressToken": token, "progress": progress, "total": total}
            yield encoded({"method": "notifications/progress", "params": params})
        for other in do.get("before", []):
            yield encoded(other)
        seconds = LONGEST_HANG_S if "hang" in do else do.get("sleep", 0)
        if "drop" in do or not (self._wait(seconds, message, gone) or do.get("late")):
            return
        if do.get("half"):
            yield b'{"jsonrpc": "2.0", "id": '
        if "exit" in do:
            sys.stderr.write(DYING_WORDS + "\n")
            sys.stderr.flush()
            os._exit(do["exit"])
        id_ = f"not-{message['id']}" if do.get("wrong_id") else message["id"]
        if "error" in do:
            yield encoded({"id": id_, "error": do["error"]})
            return
        result = self._full(do["result"] if "result" in do else _text(self._said(do, message)))
        told = {"result": result, "id": id_} if do.get("id_last") else {"id": id_, "result": result}
        answer = encoded({**told, **do.get("frame", {})})
        for _ in range(do.get("times", 1)):
            yield b"[%s, %s]" % (encoded(LOG_LINE), answer) if do.get("batch") else answer

    def _said(self, do: dict[str, Any], message: Message) -> str:
        if "bytes" in do:
            return filler(do["bytes"])
        received = {key: value for key, value in message["params"].items() if key != "_meta"}
        return json.dumps({**received, "pid": os.getpid(), "instance": self.instance})

    def _wait(self, seconds: float, message: Message, gone: Callable[[], bool]) -> bool:
        """Wait, unless the caller takes the call back first."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if gone() or message["id"] in self.cancelled:
                self.note({"method": "(taken back)", "params": message.get("params")})
                return False
            time.sleep(0.01)
        return True


def _text(text: str) -> Message:
    return {"content": [{"type": "text", "text": text}]}


def encoded(message: Message) -> bytes:
    """A message as it travels; the order of its members is the caller's."""
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that every rogue has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--plan", type=Path, default=Path("plan.json"))
    parser.add_argument("--log", type=Path, default=Path("log.jsonl"))
    parser.add_argument("--mode", action="append", default=[], dest="modes")
    return parser


class Pipes:
    """Standard input and output, one message a line."""

    def __init__(self, rogue: Rogue) -> None:
        self._rogue = rogue
        self._lock = threading.Lock()

    def run(self) -> None:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            self._rogue.note(message)
            if "prim" in self._rogue.plan["modes"] and message["method"] == "server/discover":
                sys.exit(DYING_WORDS)
            threading.Thread(target=self._serve, args=(message,), daemon=True).start()

    def _serve(self, message: Message) -> None:
        noise = _GARBAGE if "garbage" in self._rogue.plan["modes"] else b""
        for answer in self._rogue.answers(message):
            end = b"\n" if answer.endswith((b"}", b"]")) else b""  # half an answer is not even a line
            with self._lock:
                sys.stdout.buffer.write(noise + answer + end + noise)
                sys.stdout.buffer.flush()


def flood(rogue: Rogue, megabytes: int) -> None:
    block = (b"rogue: something that nobody needs to know\n" * 25_000)[: 1 << 20]
    for _ in range(megabytes):
        os.write(2, block)
    rogue.note({"method": "(flooded)"})


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    rogue = Rogue(options.plan, options.log, options.modes)
    plan = rogue.plan
    rogue.note({"method": "(started)", "env": dict(os.environ), "cwd": str(Path.cwd()), "argv": sys.argv})
    if "exit" in plan["modes"]:
        sys.exit(DYING_WORDS)
    if "stubborn" in plan["modes"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "flood" in plan["modes"]:
        threading.Thread(target=flood, args=(rogue, plan["flood_mb"]), daemon=True).start()
    if "haunted" in plan["modes"]:
        child = subprocess.Popen(["sleep", str(LONGEST_HANG_S)])
        rogue.note({"method": "(haunted)", "child": child.pid})
    time.sleep(plan.get("ready_s", 0))
    Pipes(rogue).run()
    if "stubborn" in plan["modes"]:
        time.sleep(LONGEST_HANG_S)


if __name__ == "__main__":
    main()
