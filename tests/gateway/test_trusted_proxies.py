"""The address of a client is the one that a configured proxy names, and no other sender can choose it."""

from pathlib import Path

import httpx2
import pytest
from pydantic import ValidationError

from tests.gateway.serving import Served, served
from toolpost.configuration.settings import ServerSettings


async def tried(gate: Served, forwarded_for: str, *, sent_from: str = "127.0.0.1") -> int:
    """The status of a sign-in with an unknown ticket, which a proxy says is from an address."""
    transport = httpx2.AsyncHTTPTransport(local_address=sent_from)
    async with httpx2.AsyncClient(base_url=gate.url, transport=transport) as http:
        headers = {"X-Forwarded-For": forwarded_for}
        reply = await http.post("/api/v1/sessions/redeem", json={"ticket": "tpt_0_x"}, headers=headers)
    return reply.status_code


async def refused_in_time(gate: Served, forwarded: str) -> bool:
    """Whether one of the next tries is refused: every six seconds, another one is allowed."""
    return 429 in [await tried(gate, forwarded) for _ in range(5)]


async def test_a_program_on_this_machine_cannot_evade_the_limit_of_sign_ins(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as gate:
        chosen = [await tried(gate, f"203.0.113.{number}", sent_from=f"127.0.0.{number + 1}") for number in range(10)]
        refused = await refused_in_time(gate, "203.0.113.99")

    assert (chosen, refused) == ([401] * 10, True)


async def test_behind_a_configured_proxy_each_client_has_its_own_limit(tmp_path: Path) -> None:
    async with served(tmp_path / "data", server={"trusted_proxies": ["127.0.0.0/8"]}) as gate:
        same = [await tried(gate, "198.51.100.7, 203.0.113.1") for _ in range(10)]
        refused = await refused_in_time(gate, "198.51.100.7, 203.0.113.1")
        other = await tried(gate, "203.0.113.1, 203.0.113.2")

    assert (same, refused, other) == ([401] * 10, True, 401)


@pytest.mark.parametrize("trusted", [[], ["127.0.0.1"]])
@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
async def test_the_operators_token_is_not_valid_through_a_proxy(tmp_path: Path, trusted: list[str], name: str) -> None:
    async with served(tmp_path / "data", server={"trusted_proxies": trusted}) as gate:
        through = await gate.http.get("/api/v1/me", headers={name: "127.0.0.1"})
        direct = await gate.http.get("/api/v1/me")

    assert (through.status_code, direct.status_code) == (401, 200)
    assert "for this machine" in through.json()["detail"]


@pytest.mark.parametrize("proxy", ["localhost", "*", "10.0.0.1/8", ""])
def test_a_proxy_is_an_address_or_a_network(proxy: str) -> None:
    with pytest.raises(ValidationError, match="not an IP address or a network"):
        ServerSettings(trusted_proxies=[proxy])
