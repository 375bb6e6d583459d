"""What is written to logs about connections."""

import logging

import pytest

from tests.mcp.programs import mirror
from toolpost import ExternalToolConfig, Settings, Toolbox


async def test_no_secret_of_a_connection_reaches_a_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with mirror() as url:
        source = ExternalToolConfig(
            name="web",
            transport="mcp",
            connection=f"{url}?api_key=s3cret-query",
            auth_type="bearer",
            auth_config={"token": "s3cret-token"},
            headers={"X-API-Key": "s3cret-header"},
        )
        async with Toolbox(settings=Settings(data_dir=None, sources=[source])) as box:
            outcome = await box.call("web.headers", {"password": "s3cret-argument"})
            await box.call("web.headers", {})
    assert outcome.status == "failed"
    assert [record for record in caplog.records if record.name.startswith("httpx2")]
    assert "s3cret" not in caplog.text
