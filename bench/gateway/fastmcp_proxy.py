"""FastMCP's proxy on clients that stay connected: `python -m bench.gateway.fastmcp_proxy ADDRESS...` serves it.

That of one server is served as it is, those of several are mounted in one server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from contextlib import AsyncExitStack

import uvicorn
from fastmcp import Client, FastMCP
from fastmcp.server import create_proxy


async def serve(addresses: list[str]) -> None:
    logging.disable(logging.WARNING)
    async with AsyncExitStack() as stack:
        proxies = [create_proxy(await stack.enter_async_context(Client(address))) for address in addresses]
        gateway: FastMCP = proxies[0] if len(proxies) == 1 else FastMCP("gateway")
        for number, proxy in enumerate(proxies if len(proxies) > 1 else []):
            gateway.mount(proxy, namespace=f"u{number}")
        with socket.create_server(("127.0.0.1", 0)) as listening:
            # As asyncio does for sockets that it makes itself: else each answer waits 40 ms for an acknowledgement.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            config = uvicorn.Config(gateway.http_app(), log_config=None, access_log=False, lifespan="on")
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            print(json.dumps({"mcp": f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"}), flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
            server.should_exit = True
            await serving


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1:]))
