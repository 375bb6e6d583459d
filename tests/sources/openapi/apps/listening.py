"""How the programs of this folder serve: on a free port, which they print."""

import socket
from typing import Any

import uvicorn


def listen(app: Any) -> None:
    # asyncio turns Nagle's algorithm off only where the protocol is named; with it every answer would take 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        config = uvicorn.Config(app, log_level="error", lifespan="off")
        uvicorn.Server(config).run(sockets=[listening])
