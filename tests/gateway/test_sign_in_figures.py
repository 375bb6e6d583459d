"""Sign-ins are counted once, wherever they happen, and shown at /metrics and GET /stats."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP

from tests.gateway.serving import served
from tests.patient_settings import PatientSettings
from tests.wire.site import Site, reply
from toolpost import (
    ExternalToolConfig,
    OAuthManager,
    OAuthProviderConfig,
    Toolbox,
    ToolNode,
    ToolRegistry,
)
from toolpost.auth import ManagedCredentials
from toolpost.auth.account_counts import AccountCounts

ANN = "acme:ann"
TOKEN = reply(200, b'{"access_token": "a-token", "token_type": "Bearer"}', content_type="application/json")


def manager(site: Site) -> OAuthManager:
    def provider(name: str) -> OAuthProviderConfig:
        return OAuthProviderConfig(
            name=name,
            display_name=name,
            auth_url=f"{site.url}/authorize",
            token_url=f"{site.url}/token",
            client_id="client",
            client_secret="s3cret-of-it",
            redirect_uri=f"https://app.example.com/callback/{name}",
        )

    return OAuthManager({"node": provider("node"), "source": provider("source")})


def server() -> FastMCP[Any]:
    made: FastMCP[Any] = FastMCP("hub")

    @made.tool(annotations={"readOnlyHint": True})
    def read() -> str:
        return "read"

    return made


def config(name: str) -> ExternalToolConfig:
    return ExternalToolConfig(
        name=name, transport="mcp", connection="memory:server", auth_type="oauth2_user", trust=True
    )


@pytest.mark.req("MET-05", "MET-07", "MET-08")
async def test_a_node_and_its_manager_share_one_set_of_counts_that_the_gateway_shows(tmp_path: Path) -> None:
    async with Site(TOKEN) as site:
        oauth = manager(site)
        node = ToolNode(config=config("node"), registry=ToolRegistry(), auth_manager=oauth, server=server())
        async with node, served(tmp_path / "data", node.get_tools()) as gate:
            asked: Any = await gate.box.call("node.read", user=ANN)
            state = asked.question.payload["state"]
            await oauth.handle_callback("code", state, provider="node", user_id=ANN)
            done = await gate.box.answer(asked.pending_id, "done", by=ANN)
            with pytest.raises(ValueError, match="state"):
                await oauth.handle_callback("code", "unknown", provider="node")
            stats = (await gate.http.get("/api/v1/stats")).json()["accounts"]
            figures = (await gate.http.get("/metrics")).text
    assert done.status == "completed"
    assert node.counts is oauth.counts
    assert stats["pauses"] == {"node": 1}
    assert stats["callbacks"] == {"success": 1, "state_invalid": 1}
    assert (stats["token_hits"], stats["token_misses"]) == ({"node": 1}, {"node": 1})
    assert stats["token_hit_rate"] == 0.5
    for line in (
        'toolpost_oauth_pauses_total{provider="node"} 1',
        'toolpost_oauth_callbacks_total{result="success"} 1',
        'toolpost_oauth_callbacks_total{result="state_invalid"} 1',
        'toolpost_oauth_token_hits_total{provider="node"} 1',
        'toolpost_oauth_token_misses_total{provider="node"} 1',
        "toolpost_oauth_resumes_total 1",
    ):
        assert line in figures


@pytest.mark.req("MET-06")
async def test_the_time_until_a_call_resumes_is_shown_as_percentiles(tmp_path: Path) -> None:
    async with Site(TOKEN) as site:
        oauth = manager(site)
        node = ToolNode(config=config("node"), registry=ToolRegistry(), auth_manager=oauth, server=server())
        async with node, served(tmp_path / "data", node.get_tools()) as gate:
            before = (await gate.http.get("/api/v1/stats")).json()["accounts"]
            asked: Any = await gate.box.call("node.read", user=ANN)
            await oauth.handle_callback("code", asked.question.payload["state"], provider="node", user_id=ANN)
            after = (await gate.http.get("/api/v1/stats")).json()["accounts"]
            figures = (await gate.http.get("/metrics")).text
    assert (before["resumes"], before["time_to_resume_s"]) == (0, {"p50": None, "p95": None, "p99": None})
    assert after["resumes"] == 1
    assert all(value >= 0 for value in after["time_to_resume_s"].values())
    quantiles = re.findall(r'^toolpost_oauth_resume_seconds\{quantile="([\d.]+)"\} ', figures, re.MULTILINE)
    assert quantiles == ["0.5", "0.95", "0.99"]


async def test_credentials_of_a_toolbox_count_with_their_manager() -> None:
    async with Site(TOKEN) as site:
        oauth = manager(site)
        credentials = ManagedCredentials(oauth, "source")
        settings = PatientSettings(data_dir=None, sources=[config("source")])
        async with Toolbox(settings=settings, credentials={"source": credentials}, servers={"source": server()}) as box:
            await box.call("source.read", user=ANN)
            counted = box.account_counts().snapshot()
    assert credentials.counts is oauth.counts
    assert (counted["pauses"], counted["token_misses"]) == ({"source": 1}, {"source": 1})


def test_counts_of_several_processes_are_added() -> None:
    first, second, together = AccountCounts(), AccountCounts(), AccountCounts()
    for number, counts in enumerate((first, second), 1):
        counts.paused("a")
        counts.callback("expired")
        counts.resumed(float(number))
        together.add(json.loads(json.dumps(counts.dump())))
    shown = together.snapshot()
    assert (shown["pauses"], shown["callbacks"], shown["resumes"]) == ({"a": 2}, {"expired": 2}, 2)
    assert shown["time_to_resume_s"]["p99"] == 2.0
