"""Servers and clients of both eras of the protocol meet over every transport."""

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from tests import parts, warm
from tests.patient_settings import PatientSettings
from toolpost import Completed, Failed, Toolbox
from toolpost.configuration.settings import NetworkSettings
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.source_kinds import TransportType
from toolpost.errors import ToolClientError

pytestmark = pytest.mark.programs

ABACUS = Path(__file__).parent / "servers" / "abacus.py"
HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"

Server = Literal["modern", "legacy"]
Protocol = Literal["auto", "legacy", "2026-07-28"]

# server, what the client is told, what they agree on
AGREEMENTS: list[tuple[Server, Protocol, str]] = [
    ("modern", "auto", STATELESS),
    ("modern", "legacy", HANDSHAKE),
    ("modern", "2026-07-28", STATELESS),
    ("legacy", "auto", HANDSHAKE),
    ("legacy", "legacy", HANDSHAKE),
]


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[Server, str]]:
    with web("modern") as modern, web("legacy") as legacy:
        yield {"modern": modern, "legacy": legacy}


@pytest.mark.req("PMCP-04")
@pytest.mark.parametrize(("server", "protocol", "agreed"), AGREEMENTS)
async def test_over_standard_input_and_output(server: Server, protocol: Protocol, agreed: str) -> None:
    await check(command(server), "auto", protocol, agreed)


@pytest.mark.req("PMCP-04")
@pytest.mark.parametrize(("server", "protocol", "agreed"), AGREEMENTS)
async def test_over_streamable_http(
    addresses: dict[Server, str], server: Server, protocol: Protocol, agreed: str
) -> None:
    await check(f"{addresses[server]}/mcp", "streamable_http", protocol, agreed)


@pytest.mark.req("KMCP-02")
@pytest.mark.parametrize("protocol", ["auto", "legacy"])
@pytest.mark.parametrize("server", ["modern", "legacy"])
async def test_over_sse_which_knows_the_handshake_only(
    addresses: dict[Server, str], server: Server, protocol: Protocol
) -> None:
    await check(f"{addresses[server]}/sse", "sse", protocol, HANDSHAKE)


@pytest.mark.req("KMCP-03", "PMCP-04", "PMCP-10")
@pytest.mark.parametrize("server", ["modern", "legacy"])
async def test_an_address_that_speaks_sse_alone_is_found_out(addresses: dict[Server, str], server: Server) -> None:
    await check(f"{addresses[server]}/sse", "auto", "auto", HANDSHAKE)


@pytest.mark.parametrize(
    ("protocol", "agreed"), [("auto", STATELESS), ("legacy", HANDSHAKE), ("2026-07-28", STATELESS)]
)
async def test_within_the_process(protocol: Protocol, agreed: str) -> None:
    await check("memory:tests.sources.mcp.servers.abacus:server", "auto", protocol, agreed)


@pytest.mark.parametrize("transport", ["stdio", "streamable_http"])
async def test_a_server_of_the_handshake_era_refuses_a_pinned_newer_one(
    addresses: dict[Server, str], transport: str
) -> None:
    connection = command("legacy") if transport == "stdio" else f"{addresses['legacy']}/mcp"
    async with toolbox(connection, transport, "2026-07-28") as box:
        (state,) = box.report
        assert box.registry.specs() == []
    assert not state.ok
    assert "2026-07-28" in (state.error or "")


async def test_a_pinned_protocol_is_not_given_up_for_the_older_transport(addresses: dict[Server, str]) -> None:
    async with toolbox(f"{addresses['modern']}/sse", "sse", "2026-07-28") as box:
        (state,) = box.report
    assert not state.ok
    assert "2026-07-28" in (state.error or "")


async def test_a_pinned_protocol_offers_what_a_found_one_does() -> None:
    offered = []
    for protocol in ("auto", "2026-07-28"):
        async with toolbox("memory:tests.sources.mcp.servers.abacus:server", "auto", protocol) as box:
            offered.append(sorted(spec.name for spec in box.registry.specs()))
    assert offered[0] == offered[1]


async def check(connection: str, transport: str, protocol: Protocol, agreed: str) -> None:
    """The tools are found, a call is answered in the agreed protocol, and an error is one."""
    async with toolbox(connection, transport, protocol) as box:
        assert [(state.ok, state.error) for state in box.report] == [(True, None)]
        assert {spec.name for spec in box.registry.specs()} >= {"abacus.add", "abacus.divide", "abacus.speak"}
        sum_, spoken = await box.call("abacus.add", {"a": 40, "b": 2}), await box.call("abacus.speak")
        nought = await box.call("abacus.divide", {"a": 1, "b": 0})
    assert isinstance(sum_, Completed)
    assert result_of(sum_.content) == 42
    assert isinstance(spoken, Completed)
    assert spoken.content["protocol"] == agreed
    assert isinstance(nought, Failed)
    assert isinstance(nought.error, ToolClientError)


def result_of(content: Any) -> Any:
    """A number comes wrapped: structured content is an object."""
    return content["result"] if isinstance(content, dict) else content


def toolbox(connection: str, transport: str, protocol: Protocol) -> Toolbox:
    config = ExternalToolConfig(
        name="abacus",
        transport=TransportType.MCP,
        connection=connection,
        connect_timeout_s=60,
        options={"transport": transport, "protocol": protocol},
    )
    network = NetworkSettings(allow_private=True)
    return Toolbox(
        settings=PatientSettings(
            data_dir=None, policy="exploratory", builtins="none", sources=[config], network=network
        )
    )


def command(server: Server) -> str:
    return shlex.join(warm.command(ABACUS) if server == "modern" else older())


def older() -> list[str]:
    return [str(parts.python_of_mcp1()), str(ABACUS)]


@contextmanager
def web(server: Server) -> Iterator[str]:
    """The server on a port of its own; its address is the first line it prints."""
    if server == "modern":
        with warm.served(ABACUS, "web") as address:
            yield address
        return
    with subprocess.Popen([*older(), "web"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()
