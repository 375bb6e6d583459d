"""Serve the catalog: `toolpost serve` over stdin and stdout, `toolpost up` over HTTP."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from toolpost.cli.commands import Config, Json, User
from toolpost.cli.output import Output
from toolpost.cli.runner import run_command
from toolpost.contracts.errors import ConfigError


def serve(config: Config = None, user: User = "") -> None:
    """Serve all tools as one MCP server on stdin and stdout, for a client that starts this command.

    Calls are for --user. What waits for a person is answered elsewhere: toolpost pending list.
    """
    run_command(partial(_serve_stdio, config, user), as_json=False)


async def _serve_stdio(config: Path | None, user: str, output: Output) -> int:
    import anyio
    from mcp.server.stdio import stdio_server

    from toolpost.gateway.mcp_server import McpServer, ProgressRelay
    from toolpost.toolbox.box import Toolbox

    relay = ProgressRelay()
    async with Toolbox.open(config, sinks=[relay]) as box:
        mcp = McpServer(box, principal=lambda _ctx: user, relay=relay)
        try:
            async with mcp.publishing(), stdio_server(stdout=anyio.wrap_file(output.stream)) as (receiving, sending):
                await mcp.server.run(receiving, sending, mcp.initialization)
        except* BrokenPipeError:
            pass  # the client has ended while it was answered; there is nobody left to tell
    return 0


def up(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Where to listen; 0 takes a free port.")] = 7300,
    config: Config = None,
    user: User = "",
    json: Json = False,
) -> None:
    """Serve all tools over HTTP on this machine: MCP at /mcp, for callers with the token of the data folder.

    Ends with SIGTERM or Ctrl-C, after the calls under way.
    """
    run_command(partial(_serve_http, config, user, port), as_json=json)


async def _serve_http(config: Path | None, user: str, port: int, output: Output) -> int:
    from toolpost.configuration.loading import load_settings
    from toolpost.gateway.http import gateway_app, local_token
    from toolpost.gateway.mcp_server import McpServer, ProgressRelay
    from toolpost.toolbox.box import Toolbox
    from toolpost.wire.http_server import listen, serve_until_stopped

    loaded = load_settings(config)
    if loaded.settings.data_dir is None:
        raise ConfigError("data_dir: null keeps no token for callers; give the gateway a data folder")
    with listen("127.0.0.1", port) as socket:
        token, relay = local_token(loaded.settings.data_dir), ProgressRelay()
        async with Toolbox.open(loaded, sinks=[relay]) as box:
            mcp = McpServer(box, principal=lambda _ctx: user, relay=relay)
            address = f"http://127.0.0.1:{socket.getsockname()[1]}/mcp"
            if output.as_json:
                output.line({"mcp": address, "token_file": str(loaded.settings.data_dir / "token")})
            else:
                output.note(f"MCP at {address}; the token of callers is in {loaded.settings.data_dir / 'token'}")
            await serve_until_stopped(gateway_app(mcp, token=token), socket)
    return 0
