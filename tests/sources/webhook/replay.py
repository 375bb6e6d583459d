"""The recorded contract of a real n8n, answered again to the requests that it was recorded for."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.wire.site import Received, Site

RECORDED = Path(__file__).with_name("recorded") / "n8n.json"
KEY = "recorded-key"


class Asked(NamedTuple):
    """What tells one request from another; of keys, only whether they are right."""

    target: str
    method: str
    key: str
    secret: str
    body: str


class Exchange(NamedTuple):
    """A request and its answer."""

    asked: Asked
    status: int
    headers: dict[str, str]
    answer: str

    def line(self) -> str:
        """The exchange as JSON in one line; an answer that is JSON stays readable."""
        answer: Any = self.answer
        if "json" in self.headers.get("content-type", ""):
            with suppress(ValueError):  # nothing at all, or one line after the other
                answer = json.loads(self.answer)
        told = {**self.asked._asdict(), "status": self.status, "headers": self.headers, "answer": answer}
        return json.dumps(told)


class N8n(NamedTuple):
    """An n8n to test against: the recorded one, or a real one behind the recorder."""

    url: str
    key: str


def asked(received: Received, right_key: str) -> Asked:
    """The request, as the recording knows it."""
    keys = received.all("x-n8n-api-key")
    key = "none" if not keys else "right" if keys == [right_key] else "wrong"
    secret = ", ".join(received.all("x-hook-secret"))
    return Asked(received.path, received.method, key, secret, received.body.decode())


def framed(status: int, headers: dict[str, str], body: bytes) -> bytes:
    """An answer as bytes."""
    pairs = {**headers, "content-length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in pairs.items())
    return f"HTTP/1.1 {status} Because\r\n{head}\r\n".encode() + body


@asynccontextmanager
async def n8n() -> AsyncIterator[N8n]:
    """The real one where `make test-n8n` names it, else the recorded one."""
    if url := os.environ.get("TOOLPOST_N8N_URL"):
        yield N8n(url, os.environ["TOOLPOST_N8N_KEY"])
        return
    async with replaying() as site:
        yield N8n(site.url, KEY)


@asynccontextmanager
async def replaying() -> AsyncIterator[Site]:
    """A site that answers as recorded; what was never asked of n8n is answered with 599, which no test takes."""
    exchanges = recorded()

    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        found = exchanges.get(asked(received, KEY))
        if found is None:
            told = f"not in the recording, run make test-n8n: {asked(received, KEY)}"
            writer.write(framed(599, {"content-type": "text/plain"}, told.encode()))
        else:
            writer.write(framed(found.status, found.headers, found.answer.encode()))
        await writer.drain()

    async with Site(answer) as site:
        yield site


def recorded() -> dict[Asked, Exchange]:
    told: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return {one.asked: one for one in map(_exchange, told["exchanges"])}


def _exchange(told: dict[str, Any]) -> Exchange:
    question = Asked(**{name: told[name] for name in Asked._fields})
    answer = told["answer"] if isinstance(told["answer"], str) else json.dumps(told["answer"])
    return Exchange(question, told["status"], told["headers"], answer)
