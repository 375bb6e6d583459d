"""n8n's public API, as far as it takes to find the active workflows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from toolpost.contracts.errors import ToolAuthError, ToolClientError, ToolTimeoutError
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.sources.webhook.recognition import looks_like_n8n
from toolpost.web.contents import parsed_json
from toolpost.web.failures import failure_of, presentable, reason_of
from toolpost.web.sending import Reply
from toolpost.wire.requests import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.contracts.errors import ToolNodeError
    from toolpost.web.encoding import Pair
    from toolpost.wire.client import HttpClient

API_KEY_HEADER = "X-N8N-API-KEY"
WORKFLOWS = "/api/v1/workflows"
HOW_TO_GET_A_KEY = (
    "Make one in n8n under Settings, n8n API, and write it into the source: "
    "auth_type: api_key, auth_config: {api_key: ...}"
)
_PAGE = 100
_MOST_PAGES = 200
_ALL_BYTES = 128 * 1024 * 1024
_LOOK_BYTES = 1024 * 1024


class N8nApi:
    """Asks one n8n; `headers` hold its API key, which goes nowhere else."""

    def __init__(self, client: HttpClient, base: str, headers: Sequence[Pair], *, timeout_s: float) -> None:
        self._client = client
        self._base = base.partition("#")[0].partition("?")[0].rstrip("/")
        self._headers = tuple(headers)
        self._timeout_s = timeout_s

    async def is_n8n(self) -> bool:
        """Whether one answers there; asked without any credential, because it may be somebody else."""
        for path in ("/rest/settings", WORKFLOWS):
            reply = await self._get(path, (), _LOOK_BYTES)
            if looks_like_n8n(reply.status, reply.headers, reply.body):
                return True
        return False

    async def active_workflows(self, *, page: int = _PAGE) -> list[dict[str, Any]]:
        """Every workflow that is active, page by page, each once."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return _each_once(await self._pages(page))
        except TimeoutError:
            what = f"{self._subject} did not list its workflows within {self._timeout_s:g} s"
            raise ToolTimeoutError(f"{what}; raise connect_timeout_s") from None

    async def _pages(self, size: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        seen = {""}
        cursor, room = "", _ALL_BYTES
        for _ in range(_MOST_PAGES):
            reply = await self._page(size, cursor, max(room, 1))
            told, room = self._told(reply), room - len(reply.body)
            found += [workflow for workflow in told["data"] if is_object(workflow)]
            cursor = told.get("nextCursor") or ""
            if not cursor:
                return found
            if not isinstance(cursor, str) or cursor in seen:
                break
            seen.add(cursor)
        raise ToolClientError(f"{self._subject} lists its workflows without end: its cursors lead nowhere new")

    async def _page(self, size: int, cursor: str, most: int) -> Reply:
        after = f"&cursor={quote(cursor, safe='', errors='replace')}" if cursor else ""
        reply = await self._get(f"{WORKFLOWS}?active=true&limit={size}{after}", self._headers, most)
        if reply.status != 200:
            raise self._refusal(reply)
        return reply

    def _told(self, reply: Reply) -> dict[str, Any]:
        try:
            told = parsed_json(reply.body)
        except ValueError:
            told = None
        if not is_object(told) or not is_array(told.get("data")):
            raise ToolClientError(f"{self._subject} did not answer as n8n's API does; {_IS_IT_THE_BASE}")
        return told

    async def _get(self, path: str, headers: tuple[Pair, ...], most: int) -> Reply:
        wanted = (("Accept", "application/json"), *headers)
        request = Request("GET", self._base + path, headers=wanted, timeout_s=self._timeout_s, max_bytes=most)
        async with await self._client.send(request) as response:
            return Reply(response.status, response.headers, await response.read())

    def _refusal(self, reply: Reply) -> ToolNodeError:
        status, secrets = reply.status, [value for _, value in self._headers]
        said = presentable(reason_of(reply.headers, reply.body), secrets)
        if status == 401:
            given = "refuses the API key" if self._headers else "wants an API key"
            return ToolAuthError(f"{self._subject} {given} ({said}). {HOW_TO_GET_A_KEY}", status_code=401)
        if status == 403:
            msg = f"{self._subject} does not let this API key list workflows ({said})"
            return ToolAuthError(f"{msg}; give it the scope workflow:list", status_code=403)
        if status == 404:
            msg = f"{self._subject} has no public API: it is switched off there (N8N_PUBLIC_API_DISABLED), or"
            return ToolClientError(f"{msg} the connection is not the base URL of an n8n", status_code=404)
        return failure_of(self._subject, status, reply.headers, reply.body, secrets=secrets)

    @property
    def _subject(self) -> str:
        return f"n8n at {self._base}"


def _each_once(workflows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A list that changes while it is read may tell of a workflow on two pages."""
    known: dict[str | int, dict[str, Any]] = {}
    for number, workflow in enumerate(workflows):
        told = workflow.get("id")
        known[told if isinstance(told, str) and told else number] = workflow
    return list(known.values())


_IS_IT_THE_BASE = "is the connection its base URL, without a path of the editor?"
