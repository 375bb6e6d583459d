"""Clients that nobody here wrote work through the gateway; `make test-clients` lets more of them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.clients.trial import (
    assert_works,
    client_home,
    client_key,
    over_http,
    over_stdio,
    python_program,
)
from tests.gateway.running import Gateway, running
from tests.parts import python_of_mcp1

pytestmark = pytest.mark.programs
CLIENTS = ["fastmcp_4", "mcp_1"]


def python_of(client: str) -> Path:
    return python_of_mcp1() if client == "mcp_1" else Path(sys.executable)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return client_home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def gateway(home: Path) -> Iterator[Gateway]:
    with running(home) as started:
        yield started


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_lists_calls_and_waits_over_http(home: Path, gateway: Gateway, client: str) -> None:
    assert_works(python_program(python_of(client), client), over_http(gateway, client_key(home)), home)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_starts_serve_lists_calls_and_waits(home: Path, client: str) -> None:
    assert_works(python_program(python_of(client), client), over_stdio(home), home)
