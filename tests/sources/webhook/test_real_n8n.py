"""What only a real n8n can show, because it cannot be recorded."""

import os

import pytest

from tests.sources.webhook.boxes import toolbox
from toolpost import ExternalToolConfig

REAL = os.environ.get("TOOLPOST_N8N_DIRECT", "")

pytestmark = pytest.mark.skipif(not REAL, reason="NOT TESTED against a real n8n here; run: make test-n8n")


async def test_an_mcp_trigger_is_an_mcp_server() -> None:
    one = ExternalToolConfig(name="flows", transport="mcp", connection=f"{REAL}/mcp/mytools")
    async with toolbox(one) as box:
        [state] = box.report
        found = [spec for spec in box.registry.specs() if spec.source == "flows"]
        outcome = await box.call(found[0].name, {"input": "2*21"})
    assert state.ok
    assert [spec.name.lower() for spec in found] == ["flows.calculator"]
    assert "42" in str(outcome.content)
