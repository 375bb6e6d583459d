"""Every field of a real answer is in /openapi.json, and lists of tools are filtered before they are cut into pages."""

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway.serving import Served, add, drop, served
from toolpost import tool
from toolpost.schema.json_values import is_array, is_object

# Of a lock, of an issuer, and of a configuration file.
JSON_ANSWERS_NOT_TRIED = {"accept_definition", "start_sign_in", "finish_sign_in", "change_source", "open_app"}
SOURCE = {"name": "more", "transport": "python", "connection": "tests.gateway.serving"}


@tool(side_effects="pure")
async def wait() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


class Answers:
    """Checks each answer of a gateway against its document, and remembers which operations answered."""

    def __init__(self, gate: Served, document: dict[str, Any]) -> None:
        self._gate = gate
        self._document = document
        self.seen: set[str] = set()

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        reply: httpx2.Response = await self._gate.http.request(method, f"/api/v1{path}", **options)
        operation = self._operation(method, path.partition("?")[0])
        answer = operation["responses"][str(reply.status_code)]["content"]["application/json"]["schema"]
        self.seen.add(operation["operationId"])
        assert list(self._unknown(reply.json(), answer, path)) == []
        return reply.json()

    def _operation(self, method: str, path: str) -> dict[str, Any]:
        for template, methods in self._document["paths"].items():
            pattern = re.sub(r"{\w+}", "[^/]+", template.removeprefix("/api/v1"))
            if method.lower() in methods and re.fullmatch(pattern, path):
                found: dict[str, Any] = methods[method.lower()]
                return found
        raise AssertionError(f"{method} {path} is not in the document")

    def _unknown(self, value: Any, schema: Any, where: str) -> Any:
        """Yield the fields of a value that its schema does not name; a schema without properties admits all."""
        if isinstance(schema, bool):  # `false`: the object that has the field reports it
            return
        if "oneOf" in schema:
            found = [list(self._unknown(value, one, where)) for one in schema["oneOf"]]
            yield from min(found, key=len)
            return
        if "$ref" in schema:
            schema = self._document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if is_array(value):
            for item in value:
                yield from self._unknown(item, schema.get("items", {}), f"{where}[]")
        elif is_object(value):
            properties: dict[str, Any] = schema.get("properties", {})
            others: dict[str, Any] = schema.get("additionalProperties", {})
            for name, part in value.items():
                if "properties" in schema and name not in properties and "additionalProperties" not in schema:
                    yield f"{where}.{name}"
                yield from self._unknown(part, properties.get(name, others), f"{where}.{name}")


async def ask_settings(answers: Answers) -> None:
    ask = answers.ask
    await ask("GET", "/collections")
    await ask("GET", "/tags")
    await ask("POST", "/policy/explain", json={"tool": "drop", "arguments": {"name": "t"}})
    await ask("GET", "/policy")
    await ask("POST", "/keys", json={"name": "bot", "scopes": ["call"]})
    await ask("GET", "/keys")
    await ask("GET", "/users")
    await ask("GET", "/tenants")
    await ask("GET", "/about")
    await ask("GET", "/config")
    await ask("GET", f"/identity?challenge={'0' * 64}")
    await ask("GET", "/events", headers={"Accept": "application/json"})
    await ask("GET", "/accounts/users")


async def ask_sources(answers: Answers) -> None:
    ask = answers.ask
    await ask("GET", "/sources/more/log")
    await ask("GET", "/presets")
    await ask("GET", "/lock")
    found = (await ask("GET", "/lock/diff?source=more"))["differences"]
    await ask(
        "POST", "/lock/approve", json={"sources": ["more"], "hashes": {one["tool"]: one["hash"] for one in found}}
    )
    await ask("POST", "/sources/plan", json={"what": "github"})
    await ask("POST", "/sources/try", json={"source": {**SOURCE, "name": "tried"}})
    await ask("POST", "/sources/detect", json={"what": "http://127.0.0.1:9"})
    await ask("POST", "/sources/import", json={"file": '{"mcpServers": {"a": {"command": "npx"}}}'})


async def test_every_field_of_an_answer_is_in_the_document(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [add, drop, wait], lock=tmp_path / "toolpost.lock") as gate:
        document = (await gate.http.get("/openapi.json")).json()
        answers = Answers(gate, document)
        ask = answers.ask
        await ask("GET", "/tools")
        await ask("GET", "/tools?q=add&view=summary&facets=source,tag")
        await ask_settings(answers)
        await ask("GET", "/tools/add")
        for arguments in ({"a": 1, "b": 2}, {"a": "x"}):  # completed, and failed
            ended = await ask("POST", "/calls", json={"tool": "add", "arguments": arguments})
            await ask("GET", f"/runs/{ended['run_id']}/outcome")
        await ask("POST", "/tools/add", json={"a": 1, "b": 2})
        paused = await ask("POST", "/calls", json={"tool": "drop", "arguments": {"name": "t"}})
        await ask("GET", "/pending")
        await ask("GET", f"/pending/{paused['pending']['id']}")
        await ask("POST", f"/pending/{paused['pending']['id']}/answer", json={"decision": "approve"})
        await ask("GET", "/runs")
        for path in ("", "/outcome", "/verify", "/events"):
            await ask("GET", f"/runs/{paused['run_id']}{path}")
        started = await ask("POST", "/calls", json={"tool": "wait", "mode": "async"})
        await ask("GET", f"/runs/{started['run_id']}/outcome?wait_s=0")
        await ask("POST", f"/runs/{started['run_id']}/cancel")
        await ask("GET", "/me")
        ticket = await ask("POST", "/tickets")
        await ask("POST", "/sessions/redeem", json={"ticket": ticket["ticket"]})
        await ask("POST", "/sessions")
        await ask("GET", "/sessions")
        other = await ask("POST", "/calls", json={"tool": "drop", "arguments": {"name": "u"}})
        await ask("POST", f"/pending/{other['pending']['id']}/escalate", json={"to": "acme:eva", "note": "please"})
        changes = [{"op": "replace", "path": "/name", "value": "v"}]
        await ask("POST", f"/pending/{other['pending']['id']}/preview", json={"changes": changes})
        answer = {"decision": "deny", "mode": "async"}
        await ask("POST", f"/pending/{other['pending']['id']}/answer", json=answer)
        for path in ("/stats", "/status", "/insight/series", "/insight/top"):
            await ask("GET", path)
        stored = await ask("POST", "/artifacts?name=a.txt", content=b"text")
        await ask("POST", f"/artifacts/{stored['id']}/link")
        await ask("GET", "/artifacts")
        await ask("GET", f"/artifacts/{stored['id']}")
        await ask("GET", "/accounts")
        await ask("POST", "/sources", json=SOURCE)
        await ask("GET", "/sources")
        await ask("GET", "/sources/more")
        await ask_sources(answers)
        await ask("POST", "/sources/more/reload")

    with_json = {
        one["operationId"]
        for methods in document["paths"].values()
        for one in methods.values()
        if any("application/json" in each.get("content", {}) for code, each in one["responses"].items() if code < "300")
    }
    assert with_json - answers.seen <= JSON_ANSWERS_NOT_TRIED | {"show_definition"}


def numbered(number: int) -> Any:
    @tool(name=f"shop.refund_{number}", side_effects="pure", tags=["last"] if number == 29 else [])
    async def refund() -> str:
        """Refund a payment."""
        return "refunded"

    return refund


async def test_a_search_is_filtered_before_it_is_cut_and_continues_page_by_page(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [numbered(number) for number in range(30)]) as gate:
        tagged = (await gate.http.get("/api/v1/tools?q=refund a payment&tag=last&limit=5")).json()
        names, pages = list[str](), 0
        query: dict[str, str | int] = {"q": "refund a payment", "limit": 12}
        while True:
            page = (await gate.http.get("/api/v1/tools", params=query)).json()
            names += [one["name"] for one in page["items"]]
            pages += 1
            if page["next"] is None:
                break
            query["cursor"] = page["next"]
        made_up = await gate.http.get("/api/v1/tools?q=refund&cursor=bm9uZQ")
        second = await gate.box.registry.search("refund a payment", limit=10, offset=10)

    assert [one["name"] for one in tagged["items"]] == ["shop.refund_29"]
    assert (pages, len(names), len(set(names))) == (3, 30, 30)
    assert [spec.name for spec in second] == names[10:20]
    assert (made_up.status_code, made_up.json()["code"]) == (400, "invalid_cursor")


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "application/json"}])
async def test_a_call_without_a_body_is_one_without_arguments(tmp_path: Path, headers: dict[str, str]) -> None:
    async with served(tmp_path / "data", [numbered(1)]) as gate:
        called = await gate.http.post("/api/v1/tools/shop.refund_1", headers=headers)
        empty = await gate.http.post("/api/v1/calls", headers=headers)

    assert (called.status_code, called.json()) == (200, "refunded")
    assert empty.status_code in (400, 415)
