"""Stands between the tests and a real n8n, and writes down what was asked and what was answered."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from tests.sources.webhook.replay import Asked, Exchange, asked, framed
from tests.wire.site import Received, Site
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Request
from toolpost.wire.network import NetworkPolicy
from tools.n8n.installing import VERSION
from tools.n8n.running import Instance

_KEPT_HEADERS = ("content-type", "www-authenticate", "retry-after")
_PASSED_ON = frozenset({"accept", "content-type", "x-n8n-api-key", "x-hook-secret", "authorization"})
_IDS = frozenset({"versionId", "activeVersionId", "projectId", "userId", "instanceId", "creatorId"})
_LEFT_OUT = frozenset({"createdAt", "updatedAt"})
_FILE = re.compile(r"/[^\s()\"']*?(?=/node_modules/)")
_STAMP = re.compile(r'(?<="timestamp":)\d+')
_META = re.compile(r'(<meta name="n8n:config:[a-z-]+" content=")[^"]*')

_EDITOR = re.compile(r"(<title>n8n.*?</title>).*", re.DOTALL)  # the rest of the page is the program of its editor


class Recorder:
    """Passes requests on to n8n and keeps each exchange once."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._client = HttpClient(
            NetworkPolicy().for_source(instance.url), timeout_s=60.0, max_bytes=64 * 1024 * 1024, max_redirects=0
        )
        self._exchanges: dict[Asked, Exchange] = {}
        self.site = Site(self._pass_on)

    async def _pass_on(self, received: Received, writer: asyncio.StreamWriter) -> None:
        headers = tuple(pair for pair in received.headers if pair[0].lower() in _PASSED_ON)
        url = self._instance.url + received.path
        body = received.body or None
        async with await self._client.send(Request(received.method, url, headers=headers, body=body)) as response:
            answer = await response.read()
            kept = {name: value for name in _KEPT_HEADERS if (value := response.headers.get(name)) is not None}
            status = response.status
        question = asked(received, self._instance.key)
        self._exchanges[question] = Exchange(question, status, kept, self._scrubbed(answer.decode()))
        writer.write(framed(status, kept, answer))
        await writer.drain()

    def write(self, file: Path) -> None:
        """Write the recording, one exchange a line, in an order that does not change."""
        lines = [exchange.line() for exchange in sorted(self._exchanges.values(), key=lambda one: one.asked)]
        file.parent.mkdir(parents=True, exist_ok=True)
        told = ",\n".join(lines)
        file.write_text(f'{{"n8n": "{VERSION}", "exchanges": [\n{told}\n]}}\n', encoding="utf-8")

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.close()

    def _scrubbed(self, answer: str) -> str:
        """An answer without what is secret, or differs each time, or tells of this machine."""
        told = answer.replace(self._instance.key, "KEY").replace(self._instance.url, "http://n8n.example")
        told = told.replace(self._instance.url.replace("127.0.0.1", "localhost"), "http://n8n.example")
        told = _STAMP.sub("0", _EDITOR.sub(r"\1", _META.sub(r"\1", _FILE.sub("/opt/n8n", told))))
        try:
            value = json.loads(told)
        except ValueError:
            return told
        return json.dumps(_without_ids(value), ensure_ascii=False, separators=(",", ":"))


def _without_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: "scrubbed" if name in _IDS and isinstance(inner, str) else _without_ids(inner)
        for name, inner in value.items()
        if name not in _LEFT_OUT
    }
