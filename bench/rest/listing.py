"""The list of a gateway's tools as a summary with facets, and a filtered search, over many tools of an API."""

from __future__ import annotations

import gzip
import http.client
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from bench.rest.gateways import start

if TYPE_CHECKING:
    from bench.rest.gateways import Gateway

_TIMES = 7
_NOUNS = ("invoice", "customer", "order", "payment", "shipment", "contract", "ticket", "user", "report", "budget")
_VERBS = {"list": "get", "read": "get", "create": "post", "update": "put", "delete": "delete"}
_ALL = "view=summary&limit=20000&facets=source,tag,side_effects"
_REQUESTS = {
    "all, the first time": _ALL,
    "all": _ALL,
    "a search, the first time": f"{_ALL}&q=create+invoice",
    "a search": f"{_ALL}&q=create+invoice",
    "a filtered search": "view=summary&limit=100&q=create+invoice&side_effects=external&verdict=ask",
}


class Listing(NamedTuple):
    """The sizes of an answer, and how long it took each time; `is_first` builds caches and the search index."""

    tools: int
    total: int
    sent_bytes: int
    bytes: int
    times_ms: list[float]
    is_first: bool


def list_tools(count: int) -> dict[str, Listing]:
    """Start a gateway with `count` tools and measure each request."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "api.json").write_text(json.dumps(_document(count)))
        source = "{name: erp, transport: http, connection: ./api.json, required: true, connect_timeout_s: 600}"
        (home / "toolpost.yaml").write_text(f"builtins: none\nsources:\n  - {source}\n")
        gateway = start(home)
        try:
            _wait_for_tools(gateway, count)
            return {kind: _measure(gateway, query, is_first="first" in kind) for kind, query in _REQUESTS.items()}
        finally:
            gateway.kill()


def _document(count: int) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for number in range(count):
        noun, verb = _NOUNS[number % len(_NOUNS)], list(_VERBS)[number // len(_NOUNS) % len(_VERBS)]
        operation = {
            "operationId": f"{verb}_{noun}_{number}",
            "summary": f"{verb.title()} one {noun} of area {number // 50}, with its notes and its history.",
            "tags": [f"area-{number // 50}"],
            "parameters": [{"name": "id", "in": "query", "required": True, "schema": {"type": "string"}}],
            "responses": {"200": {"description": "done"}},
        }
        paths[f"/{noun}/{number}"] = {_VERBS[verb]: operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": "ERP", "version": "1"},
        "servers": [{"url": "http://127.0.0.1:9"}],
        "paths": paths,
    }


def _wait_for_tools(gateway: Gateway, count: int) -> None:
    while gateway.ask("/sources/erp")["tools"] < count:
        time.sleep(0.1)


def _measure(gateway: Gateway, query: str, *, is_first: bool) -> Listing:
    times, body = list[float](), b""
    for _ in range(1 if is_first else _TIMES):
        began = time.perf_counter()
        body = _get(gateway, f"/tools?{query}")
        times.append((time.perf_counter() - began) * 1000)
    whole = gzip.decompress(body)
    answer = json.loads(whole)
    return Listing(len(answer["items"]), answer["total"], len(body), len(whole), times, is_first)


def _get(gateway: Gateway, path: str) -> bytes:
    address = urlsplit(gateway.address)
    connection = http.client.HTTPConnection(address.netloc, timeout=60)
    connection.request(
        "GET",
        f"{address.path}{path}",
        headers={"Authorization": f"Bearer {gateway.token}", "Accept-Encoding": "gzip"},
    )
    body = connection.getresponse().read()
    connection.close()
    return body
