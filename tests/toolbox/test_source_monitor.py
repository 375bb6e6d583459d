"""What is told of sources: each state once, however often a source tries again."""

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.gateway.serving import listening
from tests.patient_settings import PatientSettings
from toolpost import Toolbox
from toolpost.contracts.events import EventCode


@pytest.mark.waits
async def test_a_source_that_stays_down_is_reported_once() -> None:
    tries = asyncio.Semaphore(0)

    async def refuse(_request: object) -> PlainTextResponse:
        tries.release()
        return PlainTextResponse("out of order", 500)

    app = Starlette(routes=[Route("/mcp", refuse, methods=["GET", "POST", "DELETE"])])
    async with listening(app) as url:
        source = {"name": "srv", "transport": "mcp", "connection": f"{url}/mcp"}
        settings = PatientSettings.model_validate({"data_dir": None, "sources": [source], "startup_wait_s": 0.0})
        async with Toolbox(settings=settings) as box, asyncio.timeout(60):
            await box.wait_for_sources()
            for _ in range(9):
                await tries.acquire()
            await box.store.events.flush()
            events = await box.store.events.read(run_id="source_srv")

    told = [event.payload["detail"] for event in events if event.code is EventCode.SOURCE_DOWN]
    assert len(told) == len(set(told)) == 1
