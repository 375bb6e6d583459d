"""Pages of MCP Apps over REST: read as the caller, opened once, with a policy that keeps them apart."""

import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.serving import Served, served

pytestmark = pytest.mark.programs

SERVER = Path(__file__).with_name("app_server.py")


def source() -> dict[str, Any]:
    words = shlex.join([sys.executable, str(SERVER)])
    options = {"protocol": "legacy"}
    return {"name": "wx", "transport": "mcp", "connection": words, "trust": True, "required": True, "options": options}


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "data", sources=[source()]) as gate:
        yield gate


async def test_the_page_of_a_tool_opens_once_and_has_an_origin_of_its_own(gate: Served) -> None:
    tool = (await gate.http.get("/api/v1/tools/wx.forecast")).json()
    link = (await gate.http.post("/api/v1/tools/wx.forecast/app")).json()["url"]
    page = await gate.http.get(link, headers={"Authorization": ""})
    again = await gate.http.get(link, headers={"Authorization": ""})
    forged = await gate.http.get(link.replace("token=", "token=x"), headers={"Authorization": ""})

    policy = page.headers["content-security-policy"]
    assert tool["app"] == "ui://weather/view.html"
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<title>Weather</title>" in page.text
    assert policy.startswith("sandbox allow-scripts; default-src 'none'; ")
    assert "connect-src https://api.example.org; frame-ancestors 'self'" in policy
    assert "script-src 'unsafe-inline' https://*.example.org;" in policy
    assert (again.status_code, forged.status_code) == (410, 404)


async def test_only_tools_with_a_page_of_their_server_have_one_and_only_callers_open_it(gate: Served) -> None:
    reader = await gate.key("acme:reader", "answer")
    plain = await gate.http.post("/api/v1/tools/wx.rain/app")
    elsewhere = await gate.http.post("/api/v1/tools/wx.elsewhere/app")
    refused = await gate.http.post("/api/v1/tools/wx.forecast/app", headers=reader)

    assert (plain.status_code, plain.json()["code"]) == (404, "no_app")
    assert (elsewhere.status_code, refused.status_code) == (404, 403)


async def test_a_rule_that_denies_the_page_is_followed(tmp_path: Path) -> None:
    policy = [{"action": "deny", "tools": ["wx.resources_read"]}, {"action": "allow"}]
    async with served(tmp_path / "data", sources=[source()], policy=policy) as gate:
        refused = await gate.http.post("/api/v1/tools/wx.forecast/app")

    assert (refused.status_code, refused.json()["code"]) == (502, "app_unreadable")
