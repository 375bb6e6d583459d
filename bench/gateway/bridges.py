"""Figure of a call of an older client to a server on stdio: through a gateway, and through bridges without checks."""

from __future__ import annotations

import asyncio
import shlex
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.core.figures import Column, Figure, Target
from bench.core.harness import Tick, interleave
from bench.envs import environment, node_program
from bench.gateway.programs import Gateway, ServedTrack, bridge, toolpost_up
from bench.mcp.endpoint import ARGUMENTS, command
from bench.mcp.scale import McpScale
from bench.mcp.seats import USUAL, ManyAtOnce, OneByOne, Sat, seated
from bench.mcp.server import ECHO

OWN, MCP_PROXY, SUPERGATEWAY = "toolpost up", "mcp-proxy 0.13", "supergateway 4.0"
BRIDGES = (MCP_PROXY, SUPERGATEWAY)
COLUMNS = (
    Column("name", "contender"),
    Column("median_us", "median µs"),
    Column("p99_us", "p99 µs"),
    Column("many_per_s", f"{USUAL.callers} at once: calls/s", 0),
    Column("of_own", f"its calls/s x {OWN}", 2),
)
NOTES = (
    "The server speaks on stdio, the client has a session of protocol 2025-06-18.",
    f"Bridges only forward messages. {OWN} validates, permits, limits and records every call on disk.",
)


def count(scale: McpScale) -> int:
    """How many ticks this figure makes."""
    return (scale.rounds + scale.crowds + 2) * (1 + len(BRIDGES))


def measure(scale: McpScale, tick: Tick) -> Figure:
    """Measure all in one run, so that all meet the same machine."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-bench-")))
        server, ports = shlex.join(command()), [_free_port() for _ in BRIDGES]
        proxy = environment("mcp-proxy").parent / "mcp-proxy"
        other = node_program("supergateway")
        gateways = {
            OWN: stack.enter_context(toolpost_up(folder / "home", [server])),
            MCP_PROXY: stack.enter_context(
                bridge([str(proxy), "--port", str(ports[0]), "--", *command()], f"http://127.0.0.1:{ports[0]}/mcp")
            ),
            SUPERGATEWAY: stack.enter_context(
                bridge(
                    [
                        *(str(other), "--stdio", server, "--outputTransport", "streamableHttp", "--stateful"),
                        *("--port", str(ports[1]), "--logLevel", "none"),
                    ],
                    f"http://127.0.0.1:{ports[1]}/mcp",
                )
            ),
        }
        return asyncio.run(_measured(scale, gateways, tick))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


async def _measured(scale: McpScale, gateways: dict[str, Gateway], tick: Tick) -> Figure:
    clients = {name: gateway.client() for name, gateway in gateways.items()}
    contenders = []
    for name, client in clients.items():
        await client.open_session()
        tool = f"u0__{ECHO}" if name == OWN else ECHO
        contenders += await seated(name, lambda client=client, tool=tool: client.call(tool, ARGUMENTS))  # type: ignore[misc]
    track = ServedTrack(contenders, gateways)
    one, many = OneByOne(track), ManyAtOnce(track)
    await interleave([one], rounds=scale.rounds, calls=scale.calls, tick=tick)
    await interleave([many], rounds=scale.crowds, calls=1, tick=tick)
    for client in clients.values():
        client.close()
    alone, crowds = ({name: Sat.of(turns) for name, turns in track.turns.items()} for track in (one, many))
    own = crowds[OWN].measured
    return Figure(
        key="gateway_bridges",
        title="A call of an older client, beside bridges",
        columns=COLUMNS,
        rows=[
            {
                "name": name,
                **alone[name].measured._asdict(),
                "many_per_s": 1e6 / crowds[name].measured.sustained_us,
                "of_own": own.times(crowds[name].measured),
            }
            for name in gateways
        ],
        targets=[
            Target(f"{OWN} / {name}, {USUAL.callers} at once", own.times(crowds[name].measured), "at most", 1, "x")
            for name in BRIDGES
        ],
        notes=NOTES,
    )
