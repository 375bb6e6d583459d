"""A gateway after some work: calls in every state, sources that are up and down, and questions of every kind."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from tests.browser.console.desk import Desk, open_desk
from tests.wire.site import Received, Site, reply

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Catalog", "version": "1"},
    "paths": {
        "/products/{id}": {
            "get": {
                "operationId": "get_product",
                "summary": "Read one product.",
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
            }
        },
        "/prices": {"get": {"operationId": "get_prices", "summary": "Read all prices; busy at times."}},
        "/orders": {
            "post": {
                "operationId": "create_order",
                "summary": "Order a product.",
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "properties": {"product": {"type": "integer"}, "note": {"type": "string"}},
                            }
                        }
                    }
                },
            }
        },
    },
}
AGENTS = ("acme:support-bot", "acme:pricing-bot", "acme:research-bot")
NOBODY = "http://127.0.0.1:9/mcp"  # The port of "discard": nothing listens there.


class Busy(NamedTuple):
    """The gateway, and what a test opens by its ID."""

    desk: Desk
    pending_id: str
    run_id: str


@asynccontextmanager
async def open_busy_desk(folder: Path) -> AsyncIterator[Busy]:
    """Serve a gateway with an API and a server that is down, after its first hundred calls."""
    async with Site(answer=_catalog()) as api:
        document = folder / "catalog.json"
        document.write_text(json.dumps({**DOCUMENT, "servers": [{"url": api.url}]}))
        sources = [
            {"name": "catalog", "transport": "http", "connection": str(document)},
            {"name": "mail-server", "transport": "mcp", "connection": NOBODY},
        ]
        async with open_desk(folder, sources=sources) as desk:
            yield await _work(desk)


def _catalog() -> Any:
    tries = count()

    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        busy = received.path == "/prices" and next(tries) % 3 < 2
        body = {"path": received.path, "name": "Lamp", "price": 49.5}
        writer.write(
            reply(503, retry_after="0")
            if busy
            else reply(200, json.dumps(body).encode(), content_type="application/json")
        )

    return answer


async def _work(desk: Desk) -> Busy:
    keys = {agent: await desk.gate.key(agent, "call") for agent in AGENTS}

    async def call(agent: str, tool: str, **arguments: Any) -> dict[str, Any]:
        body = {"tool": tool, "arguments": arguments}
        answer = await desk.gate.http.post("/api/v1/calls", json=body, headers=keys[agent])
        outcome: dict[str, Any] = answer.json()
        return outcome

    for number in range(30):
        agent = AGENTS[number % 3]
        await call(agent, "shop.products", count=number)
        await call(agent, "catalog.get_product", id=number)
        if number % 6 == 0:
            await call(agent, "shop.stock", product=f"lamp {number}")
            await call(agent, "catalog.get_prices")
    await call("acme:pricing-bot", "shop.close")
    checkout = await call("acme:support-bot", "shop.checkout", euro=120)
    for decision in ({"decision": "approve"}, {"decision": "deny", "reason": "Get a photo first."}):
        asked = await call("acme:support-bot", "bank.transfer", to="Lamps Ltd", euro=40)
        await _answer(desk, asked["pending"]["id"], decision)
    await _answer(desk, await _question_of(desk, checkout["run_id"]), {"decision": "approve"})
    first = await call("acme:support-bot", "bank.transfer", to="Lamps Ltd", euro=900, password="hunter2")
    await call("acme:support-bot", "bank.refund", order=7, euro=12)
    await call("acme:pricing-bot", "files.set_rate", rate=21)
    await call("acme:research-bot", "mail.send", to="ann@shop.example", subject="Offer", text="A lamp for 49 EUR?")
    await call("acme:support-bot", "shop.guests")
    await desk.gate.box.store.events.flush()
    return Busy(desk, first["pending"]["id"], checkout["run_id"])


async def _question_of(desk: Desk, run_id: str) -> str:
    found = (await desk.gate.http.get("/api/v1/pending")).json()["items"]
    return next(str(card["id"]) for card in found if card["run_id"] == run_id)


async def _answer(desk: Desk, pending_id: str, answer: dict[str, str]) -> httpx2.Response:
    return await desk.gate.http.post(f"/api/v1/pending/{pending_id}/answer", json=answer)
