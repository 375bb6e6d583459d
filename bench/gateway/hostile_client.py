"""Attacks on a gateway: `python hostile_client.py connections|bodies ADDRESS TOKEN`. Standard library only."""

from __future__ import annotations

import json
import socket
import sys
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

CONNECTIONS = 1200
OBJECTS = 1_000_000
HELD_S = 1.0


def hold_connections(host: str, port: int) -> str:
    """Open idle connections, and see whether a new client is served beside them."""
    held = [socket.create_connection((host, port)) for _ in range(CONNECTIONS)]
    late = HTTPConnection(host, port, timeout=60)
    late.request("GET", "/healthz")
    status = late.getresponse().status
    time.sleep(HELD_S)
    for one in held:
        one.close()
    return f"HTTP {status} to a new client"


def post_bodies(host: str, port: int, token: str) -> str:
    """Post three bodies of many small objects at once."""
    body = b'{"tool":"local.add","arguments":{"a":[' + b",".join([b"{}"] * OBJECTS) + b"]}}"
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    posts = [HTTPConnection(host, port, timeout=60) for _ in range(3)]
    for post in posts:
        post.request("POST", "/api/v1/calls", body, headers)
    codes = [json.loads(post.getresponse().read())["code"] for post in posts]
    return str(codes[0])


if __name__ == "__main__":
    kind, address, bearer = sys.argv[1:]
    where = urlsplit(address)
    target = str(where.hostname), where.port or 80
    print(hold_connections(*target) if kind == "connections" else post_bodies(*target, bearer))
