"""The misbehaving MCP server over HTTP: streamable (both eras) at /mcp, and the old HTTP+SSE at /sse.

Beside what every plan may say (see `rogue`), here it may hold:

    style    "json" (the default) or "sse": how an answer to a POST at /mcp comes
    type     what is said of an answer that comes as JSON, in place of application/json
    refuse   a list of {"status", "method", "after", "times", "headers", "body"}: requests of that method are
             refused with that status, after so many were let through, so many times
    lost     [status, code, text]: how a session is refused that this process did not begin
    only     "sse" when /mcp does not exist, "mcp" when /sse does not
    both     whether a GET at /mcp gets the stream of the old transport, and then news for the new one

It prints its port when it listens: `python -m tests.sources.mcp.rogue_http --plan plan.json --port 8123`.
"""

import json
import queue
import select
import socket
import socketserver
import sys
import threading
import uuid
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tests.sources.mcp.rogue import Message, Rogue, arguments, encoded

if TYPE_CHECKING:
    from collections.abc import Callable

SESSION = "Mcp-Session-Id"


class Server(ThreadingHTTPServer):
    """Serves each connection in a thread of its own."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int, rogue: Rogue) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.rogue = rogue
        self.sessions: set[str] = set()
        self.streams: dict[str, queue.Queue[bytes]] = {}
        self.seen: Counter[str] = Counter()

    def server_bind(self) -> None:
        # The stdlib asks DNS for the host's full name here, which may take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may hang up whenever they like; anything else is a mistake of ours, and shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def refusal(self, method: str) -> dict[str, Any] | None:
        """How this request is refused, if it is its turn."""
        self.seen[method] += 1
        for rule in self.rogue.plan.get("refuse", []):
            begin = rule.get("after", 0)
            if rule.get("method", method) == method and begin < self.seen[method] <= begin + rule.get("times", 10**6):
                return dict(rule)
        return None


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing on stderr."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        plan = self.server.rogue.plan
        if (path == "/sse" and plan.get("only") != "mcp") or (path == "/mcp" and plan.get("both")):
            self._serve_stream()
        else:
            self._send(405 if path == "/mcp" else 404, b"")

    def do_DELETE(self) -> None:
        self.server.sessions.discard(self.headers.get(SESSION, ""))
        self._note({"method": "(session ended)"})
        self._send(204, b"")

    def do_POST(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        posts: dict[str, Callable[[Message], None]] = {"/mcp": self._serve_post, "/messages": self._serve_message}
        if self.server.rogue.plan.get("only") == "sse":
            del posts["/mcp"]
        serve = posts.get(url.path)
        if serve is None:
            self._send(405 if url.path == "/sse" else 404, b"")
            return
        message = json.loads(body)
        self._note(message)
        refused = self.server.refusal(message.get("method", "(answer)"))
        if refused is None:
            serve(message)
        else:
            self._send(refused["status"], refused.get("body", "no").encode(), **refused.get("headers", {}))

    def _note(self, message: Message) -> None:
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.server.rogue.note(message, headers=headers, path=self.path)

    def _serve_post(self, message: Message) -> None:
        session = self.headers.get(SESSION, "")
        legacy = self.server.rogue.plan["era"] == "legacy"
        given: dict[str, str] = {}
        if legacy and message.get("method") == "initialize":
            session = uuid.uuid4().hex
            self.server.sessions.add(session)
            given = {SESSION: session}
        elif legacy and message.get("method") != "server/discover" and session not in self.server.sessions:
            self._refuse_session()
            return
        if "id" not in message:
            list(self.server.rogue.answers(message))
            self._send(202, b"")
        elif self.server.rogue.plan.get("style", "json") == "sse":
            self._send_events(message, given)
        else:
            self._send_json(message, given)

    def _refuse_session(self) -> None:
        status, code, text = self.server.rogue.plan.get("lost") or (404, 0, "no such session")
        if code == 0:
            self._send(status, text.encode())
            return
        body = {"jsonrpc": "2.0", "error": {"code": code, "message": text}, "id": None}
        self._send(status, json.dumps(body).encode(), **{"Content-Type": "application/json"})

    def _send_json(self, message: Message, headers: dict[str, str]) -> None:
        answer = b"".join(self.server.rogue.answers(message, self._is_gone))
        if answer:
            kind = self.server.rogue.plan.get("type", "application/json")
            self._send(200, answer, **({"Content-Type": kind} if kind else {}), **headers)
        elif message["id"] in self.server.rogue.cancelled:
            error = {"code": -32800, "message": "Request cancelled"}
            self._send(200, encoded({"id": message["id"], "error": error}), **{"Content-Type": "application/json"})
        else:
            self.close_connection = True

    def _is_gone(self) -> bool:
        """Whether the client has hung up."""
        ready, _, _ = select.select([self.connection], [], [], 0)
        return bool(ready) and self.connection.recv(1, socket.MSG_PEEK) == b""

    def _serve_stream(self) -> None:
        session = uuid.uuid4().hex
        waiting: queue.Queue[bytes] = queue.Queue()
        self.server.streams[session] = waiting
        self._note({"method": "(stream opened)", "session": session})
        self._begin_events({})
        self._write_event("endpoint", f"/messages?session_id={session}".encode())
        if self.server.rogue.plan.get("both"):
            waiting.put(encoded({"method": "notifications/tools/list_changed"}))
        while True:
            try:
                self._write_event("message", waiting.get(timeout=0.2))
            except queue.Empty:
                if self._is_gone():
                    return

    def _serve_message(self, message: Message) -> None:
        session = parse_qs(urlsplit(self.path).query).get("session_id", [""])[0]
        waiting = self.server.streams.get(session)
        if waiting is None:
            self._send(404, b"no such session")
            return
        self._send(202, b"")
        threading.Thread(target=self._answer_later, args=(message, waiting), daemon=True).start()

    def _answer_later(self, message: Message, waiting: queue.Queue[bytes]) -> None:
        for answer in self.server.rogue.answers(message):
            waiting.put(answer)

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_events(self, message: Message, headers: dict[str, str]) -> None:
        self._begin_events(headers)
        for answer in self.server.rogue.answers(message, self._is_gone):
            self._write_event("message", answer)

    def _begin_events(self, headers: dict[str, str]) -> None:
        self.close_connection = True
        self.send_response(200)
        for key, value in {"Content-Type": "text/event-stream", "Connection": "close", **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.flush()

    def _write_event(self, kind: str, data: bytes) -> None:
        self.wfile.write(b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n")
        self.wfile.flush()


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    rogue = Rogue(options.plan, options.log, options.modes)
    server = Server(options.port, rogue)
    rogue.note({"method": "(started)"})
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever(poll_interval=0.05)


if __name__ == "__main__":
    main()
