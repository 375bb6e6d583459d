"""Client of n8n's public API: detect an n8n, and list its active workflows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from toolpost.contracts.errors import ToolAuthError, ToolClientError, ToolNodeError, ToolTimeoutError
from toolpost.http.content import parse_json, parse_media_type
from toolpost.http.encoding import Pair
from toolpost.http.response_errors import extract_reason, response_error, sanitize
from toolpost.schema.json_values import is_array, is_object
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Headers, Request, Response

API_KEY_HEADER = "X-N8N-API-KEY"
WORKFLOWS_PATH = "/api/v1/workflows"
API_KEY_HINT = (
    "Create one in n8n under Settings, n8n API, and add it to the source: "
    "auth_type: api_key, auth_config: {api_key: ...}"
)
_PAGE_SIZE = 100
_MAX_PAGES = 200
_MAX_TOTAL_BYTES = 128 * 1024 * 1024
_MAX_PROBE_BYTES = 1024 * 1024
_BASE_URL_HINT = "is the connection its base URL, without a path of the editor?"
_MAX_HTML_BYTES = 64 * 1024
_HTML_MARKERS = (b'name="n8n:config:', b"<title>n8n.io - workflow automation")
# Keys that occur together in n8n's settings; newer versions return only the first three before a login.
_SETTINGS_KEYS = (
    {"settingsMode", "userManagement", "authCookie"},
    {"versionCli", "endpointWebhook"},
    {"n8nMetadata", "userManagement"},
)


class N8nApi:
    """Client for the API of one n8n; `headers` contain its API key."""

    def __init__(self, client: HttpClient, base: str, headers: Sequence[Pair], *, timeout_s: float) -> None:
        self._client = client
        self._base = base.partition("#")[0].partition("?")[0].rstrip("/")
        self._headers = tuple(headers)
        self._timeout_s = timeout_s

    async def is_n8n(self) -> bool:
        """Probe the base URL without a credential, because it may be another server."""
        for path in ("/rest/settings", WORKFLOWS_PATH):
            response = await self._get(path, (), _MAX_PROBE_BYTES)
            if looks_like_n8n(response.status, response.headers, response.body):
                return True
        return False

    async def active_workflows(self, *, page: int = _PAGE_SIZE) -> list[dict[str, Any]]:
        """List the active workflows over all pages, each once."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return _deduplicate(await self._pages(page))
        except TimeoutError:
            what = f"{self._subject} did not list its workflows within {self._timeout_s:g} s"
            raise ToolTimeoutError(f"{what}; raise connect_timeout_s") from None

    async def _pages(self, size: int) -> list[dict[str, Any]]:
        workflows: list[dict[str, Any]] = []
        seen = {""}
        cursor, bytes_left = "", _MAX_TOTAL_BYTES
        for _ in range(_MAX_PAGES):
            response = await self._page(size, cursor, max(bytes_left, 1))
            content, bytes_left = self._parse_page(response), bytes_left - len(response.body)
            workflows += [workflow for workflow in content["data"] if is_object(workflow)]
            cursor = content.get("nextCursor") or ""
            if not cursor:
                return workflows
            if not isinstance(cursor, str) or cursor in seen:
                break
            seen.add(cursor)
        fault = "it returned an invalid or repeated cursor, or too many pages"
        raise ToolClientError(f"{self._subject} does not end its list of workflows: {fault}")

    async def _page(self, size: int, cursor: str, max_bytes: int) -> Response:
        after = f"&cursor={quote(cursor, safe='', errors='replace')}" if cursor else ""
        response = await self._get(f"{WORKFLOWS_PATH}?active=true&limit={size}{after}", self._headers, max_bytes)
        if response.status != 200:
            raise self._error(response)
        return response

    def _parse_page(self, response: Response) -> dict[str, Any]:
        try:
            content = parse_json(response.body)
        except ValueError:
            content = None
        if not is_object(content) or not is_array(content.get("data")):
            raise ToolClientError(f"{self._subject} did not answer as n8n's API does; {_BASE_URL_HINT}")
        return content

    async def _get(self, path: str, headers: tuple[Pair, ...], max_bytes: int) -> Response:
        all_headers = (("Accept", "application/json"), *headers)
        request = Request("GET", self._base + path, headers=all_headers, timeout_s=self._timeout_s, max_bytes=max_bytes)
        async with await self._client.send(request) as response:
            await response.read()
            return response

    def _error(self, response: Response) -> ToolNodeError:
        status, secrets = response.status, [value for _, value in self._headers]
        reason = sanitize(extract_reason(response.headers, response.body), secrets)
        if status == 401:
            problem = "rejects the API key" if self._headers else "requires an API key"
            return ToolAuthError(f"{self._subject} {problem} ({reason}). {API_KEY_HINT}", status_code=401)
        if status == 403:
            msg = f"{self._subject} does not let this API key list workflows ({reason})"
            return ToolAuthError(f"{msg}; give it the scope workflow:list", status_code=403)
        if status == 404:
            msg = f"{self._subject} has no public API: it is switched off there (N8N_PUBLIC_API_DISABLED), or"
            return ToolClientError(f"{msg} the connection is not the base URL of an n8n", status_code=404)
        return response_error(self._subject, status, response.headers, response.body, secrets=secrets)

    @property
    def _subject(self) -> str:
        return f"n8n at {self._base}"


def _deduplicate(workflows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep one entry per workflow id; a list that changes during paging may repeat one."""
    by_id: dict[str | int, dict[str, Any]] = {}
    for number, workflow in enumerate(workflows):
        workflow_id = workflow.get("id")
        by_id[workflow_id if isinstance(workflow_id, str) and workflow_id else number] = workflow
    return list(by_id.values())


def looks_like_n8n(status: int, headers: Headers | Mapping[str, str], body: bytes) -> bool:
    """Detect an n8n by its response to a GET of the base URL, `/rest/settings` or `/api/v1/workflows`."""
    # Not by `/healthz`: many servers return its {"status": "ok"}.
    kind = parse_media_type(headers.get("content-type") or "")
    if kind.essence == "text/html":
        page = body[:_MAX_HTML_BYTES].lower()
        return status == 200 and any(marker in page for marker in _HTML_MARKERS)
    if kind.kind != "json":
        return False
    return _is_n8n_json(status, body)


def _is_n8n_json(status: int, body: bytes) -> bool:
    try:
        value = parse_json(body)
    except ValueError:
        return False
    if not is_object(value):
        return False
    if status == 401:
        return "x-n8n-api-key" in str(value.get("message")).lower()
    settings = value.get("data")
    return status == 200 and is_object(settings) and any(keys <= settings.keys() for keys in _SETTINGS_KEYS)
