"""Connections to MCP servers behind the network guard."""

import socket
from typing import Any

import pytest

from tests.patient_settings import PatientSettings
from tests.sources.mcp.programs import mirror
from toolpost import ExternalToolConfig, Toolbox


@pytest.mark.parametrize("transport", ["streamable_http", "sse"])
async def test_a_server_whose_name_leads_to_the_metadata_of_a_cloud_is_never_connected_to(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    async def metadata(loop: object, host: str, port: int, /, **facts: int) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", port))]

    def spy(self: socket.socket, address: Any) -> None:
        asked.append(address)
        raise OSError("no connection may be tried")

    monkeypatch.setattr("asyncio.base_events.BaseEventLoop.getaddrinfo", metadata)
    monkeypatch.setattr("socket.socket.connect", spy)
    source = ExternalToolConfig(
        name="far", transport="mcp", connection="http://mcp.example.org/mcp", options={"transport": transport}
    )
    async with Toolbox(settings=PatientSettings(data_dir=None, sources=[source])) as box:
        [state] = box.report
    assert not state.ok
    assert "169.254.169.254" in str(state.error)
    assert "not a public address" in str(state.error)
    assert asked == []


@pytest.mark.programs
async def test_a_server_that_an_operator_wrote_down_is_reached_at_its_own_port() -> None:
    with mirror() as url:
        source = ExternalToolConfig(name="web", transport="mcp", connection=url)
        async with Toolbox(settings=PatientSettings(data_dir=None, policy="exploratory", sources=[source])) as box:
            assert [state.ok for state in box.report] == [True]
