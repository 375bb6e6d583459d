"""Servers on this machine that the examples talk to, in place of GitHub, Stripe and the rest."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar
from urllib.parse import urlsplit

from fastmcp import FastMCP

github: FastMCP[Any] = FastMCP("github")


@github.tool(annotations={"readOnlyHint": True})
def list_issues(repo: str) -> list[str]:
    """List the open issues of a repository."""
    return [f"{repo}#1: the roof leaks", f"{repo}#2: the door sticks"]


@github.tool(annotations={"readOnlyHint": False, "destructiveHint": False})
def create_issue(repo: str, title: str) -> str:
    """Open an issue."""
    return f"{repo}#3: {title}"


def _utcp_manual(url: str) -> dict[str, Any]:
    """Describe the tools of the web API, in the format of UTCP."""
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [("forecast", "Tell the weather.", city), ("list_charges", "List charges.", {"type": "object"})]
    return {
        "utcp_version": "1.0.1",
        "manual_version": "1.0.0",
        "tools": [
            {
                "name": name,
                "description": text,
                "inputs": inputs,
                "tool_call_template": {"call_template_type": "http", "url": f"{url}/{name}", "http_method": "GET"},
            }
            for name, text, inputs in tools
        ],
    }


def _openapi(url: str) -> dict[str, Any]:
    """Describe the same API, in the format of OpenAPI."""
    charges = {"operationId": "list_charges", "summary": "List charges.", "responses": {"200": {"description": "ok"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Payments", "version": "1"},
        "servers": [{"url": url}],
        "paths": {"/list_charges": {"get": charges}},
    }


class _WebApi(BaseHTTPRequestHandler):
    """Says what it was asked, and with which credential."""

    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        url = f"http://{self.headers['Host']}"
        self.seen.append(self.headers["X-API-Key"] or self.headers["Authorization"] or "no credential")
        documents = {
            "/.well-known/utcp.json": _utcp_manual(url),
            "/openapi.json": _openapi(url),
            "/forecast": {"sky": "rain"},
            "/list_charges": {"charges": [{"amount": 1200, "currency": "eur"}]},
        }
        self._say(documents.get(path, {}))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path == "/token":
            self._say({"access_token": "token-of-the-user", "token_type": "Bearer"})
        else:
            self._say({"started": json.loads(body)})

    def _say(self, document: object) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, format: str, *_: object) -> None:
        """Be quiet."""


@contextmanager
def web_api() -> Iterator[str]:
    """Serve a weather and payments API with a UTCP manual, an OpenAPI document and a token endpoint."""
    _WebApi.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _WebApi)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def seen_credentials() -> list[str]:
    """Return the credentials that the web API was sent, in order."""
    return list(dict.fromkeys(_WebApi.seen))
