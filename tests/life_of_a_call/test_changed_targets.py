"""An approval is bound to where the call goes: what was exchanged after the question does not run."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP

from tests.patient_settings import PatientSettings
from tests.wire.site import Site
from toolpost import Completed, ExternalToolConfig, Paused, Settings, Toolbox, TransportType, tool
from toolpost.errors import ToolConflictError

ANN, BOB = "acme:ann", "acme:bob"


def openapi(
    *, path: str = "/pay", server: str = "", base: str = "", method: str = "post"
) -> Callable[[str, Path], dict[str, Any]]:
    def source(url: str, folder: Path) -> dict[str, Any]:
        operation = {"operationId": "pay", "responses": {"200": {"description": "Paid"}}}
        document = {
            "openapi": "3.1.0",
            "info": {"title": "Bank", "version": "1"},
            "servers": [{"url": (server or url) + base}],
            "paths": {path: {method: operation}},
        }
        (folder / "bank.json").write_text(json.dumps(document))
        return {"transport": "http", "connection": str(folder / "bank.json")}

    return source


def utcp(*, path: str = "/pay", server: str = "") -> Callable[[str, Path], dict[str, Any]]:
    def source(url: str, folder: Path) -> dict[str, Any]:
        template = {"call_template_type": "http", "url": (server or url) + path, "http_method": "POST"}
        manual = {"utcp_version": "1.0.1", "tools": [{"name": "pay", "tool_call_template": template}]}
        (folder / "manual.json").write_text(json.dumps(manual))
        return {"transport": "utcp", "connection": str(folder / "manual.json")}

    return source


def command(*, program: str = "echo", words: list[str]) -> Callable[[str, Path], dict[str, Any]]:
    return lambda _url, _folder: {
        "transport": "cli",
        "connection": program,
        "options": {"tools": {"pay": {"args": words, "destructive": True}}},
    }


def python(body: str) -> Callable[[str, Path], dict[str, Any]]:
    def source(_url: str, folder: Path) -> dict[str, Any]:
        written = f"from toolpost import tool\n\n@tool(destructive=True)\ndef pay() -> str:\n    return {body!r}\n"
        (folder / "tools.py").write_text(written)
        return {"transport": "python", "connection": str(folder / "tools.py")}

    return source


def webhook(path: str) -> Callable[[str, Path], dict[str, Any]]:
    return lambda url, _folder: {
        "transport": "webhook",
        "connection": url,
        "options": {"kind": "plain", "tools": {"pay": {"url": path, "destructive": True}}},
    }


CHANGES = {
    "OpenAPI path": (openapi(), openapi(path="/pay-all"), "/pay-all"),
    "OpenAPI host": (openapi(), openapi(server="http://localhost:9"), "http://localhost:9/pay"),
    "OpenAPI base path": (openapi(), openapi(base="/v2"), "/v2/pay"),
    "OpenAPI POST to PATCH": (openapi(), openapi(method="patch"), "PATCH"),
    "OpenAPI POST to PUT": (openapi(), openapi(method="put"), "PUT"),
    "UTCP path": (utcp(), utcp(path="/pay-all"), "/pay-all"),
    "UTCP host": (utcp(), utcp(server="http://localhost:9"), "http://localhost:9/pay"),
    "command's words": (command(words=["one"]), command(words=["all"]), "echo all"),
    "command's program": (command(words=["one"]), command(program="printf", words=["one"]), "printf one"),
    "webhook's URL": (webhook("pay"), webhook("pay-all"), "/pay-all"),
}


def box_of(source: dict[str, Any], folder: Path) -> Toolbox:
    config = ExternalToolConfig(name="bank", **source)
    return Toolbox(settings=PatientSettings(data_dir=folder / "data", builtins="none", sources=[config]))


@pytest.mark.parametrize("what", CHANGES)
async def test_a_yes_does_not_run_a_call_that_goes_elsewhere_now(what: str, tmp_path: Path) -> None:
    before, after, now = CHANGES[what]
    async with Site() as site:
        async with box_of(before(site.url, tmp_path), tmp_path) as box:
            paused = await box.call("bank.pay", user=ANN)
            assert isinstance(paused, Paused)
        async with box_of(after(site.url, tmp_path), tmp_path) as box:
            with pytest.raises(ToolConflictError) as refused:
                await box.approve(paused.pending_id, by=BOB)
        assert site.requests == []
    assert refused.value.error_code == "tool_changed"
    assert "has changed since the question: it was " in str(refused.value)
    assert now in str(refused.value).partition("and is now")[2]


async def test_a_yes_does_not_run_another_body_of_the_same_function(tmp_path: Path) -> None:
    async with box_of(python("one")("", tmp_path), tmp_path) as box:
        paused = await box.call("bank.pay", user=ANN)
        assert isinstance(paused, Paused)
    async with box_of(python("everything")("", tmp_path), tmp_path) as box:
        with pytest.raises(ToolConflictError, match="has changed since the question"):
            await box.approve(paused.pending_id, by=BOB)


async def test_a_yes_does_not_run_another_tool_of_a_server_under_the_same_name(tmp_path: Path) -> None:
    asked, swapped = FastMCP("Bank"), FastMCP("Bank")
    asked.tool(lambda: "one", name="pay.note")
    swapped.tool(lambda: "all", name="pay note")
    source = ExternalToolConfig(name="bank", transport=TransportType.MCP, connection="memory:bank")
    settings = PatientSettings(data_dir=tmp_path / "data", builtins="none", sources=[source])
    async with Toolbox(settings=settings, servers={"bank": asked}) as box:
        paused = await box.call("bank.pay_note", user=ANN)
        assert isinstance(paused, Paused)
    async with Toolbox(settings=settings, servers={"bank": swapped}) as box:
        with pytest.raises(ToolConflictError, match=r"'pay\.note' of .* and is now tool 'pay note'"):
            await box.approve(paused.pending_id, by=BOB)


async def test_changed_arguments_do_not_smuggle_a_changed_tool_past_a_yes(tmp_path: Path) -> None:
    async with box_of(openapi()("http://localhost:9", tmp_path), tmp_path) as box:
        paused = await box.call("bank.pay", user=ANN)
        assert isinstance(paused, Paused)
    async with box_of(openapi(path="/pay-all")("http://localhost:9", tmp_path), tmp_path) as box:
        with pytest.raises(ToolConflictError, match="has changed since the question"):
            await box.approve(paused.pending_id, by=BOB, changes=[])


async def test_a_yes_runs_what_stayed_the_same(tmp_path: Path) -> None:
    async with Site() as site:
        source = webhook("pay")(site.url, tmp_path)
        async with box_of(source, tmp_path) as box:
            paused = await box.call("bank.pay", user=ANN)
            assert isinstance(paused, Paused)
        async with box_of(source, tmp_path) as box:
            assert isinstance(await box.approve(paused.pending_id, by=BOB), Completed)
        assert [request.path for request in site.requests] == ["/pay"]


async def test_a_question_says_where_the_call_goes_without_the_secrets_in_its_address(tmp_path: Path) -> None:
    source = webhook("pay?token=s3cr3t-and-long&unit=euro")("http://localhost:9", tmp_path)
    async with box_of(source, tmp_path) as box:
        paused = await box.call("bank.pay", user=ANN)
    assert isinstance(paused, Paused)
    shown = "POST http://localhost:9/pay?token=[redacted]&unit=euro"
    assert paused.question.target == {"kind": "webhook", "summary": shown}


async def test_a_function_of_the_program_itself_is_bound_to_its_code(tmp_path: Path) -> None:
    def pay() -> str:
        return "one"

    def swapped() -> str:
        return "all"

    swapped.__name__ = swapped.__qualname__ = "pay"
    settings = Settings(data_dir=tmp_path / "data", builtins="none")
    async with Toolbox(tools=[tool(destructive=True)(pay)], settings=settings) as box:
        paused = await box.call("pay", user=ANN)
        assert isinstance(paused, Paused)
        assert paused.question.target["summary"].endswith("in test_changed_targets.py")
    async with Toolbox(tools=[tool(destructive=True)(swapped)], settings=settings) as box:
        with pytest.raises(ToolConflictError, match="has changed since the question"):
            await box.approve(paused.pending_id, by=BOB)


async def test_a_function_is_bound_to_what_is_wrapped_around_it(tmp_path: Path) -> None:
    def pay(amount: int) -> str:
        return f"paid {amount}"

    def guarded(amount: int) -> str:
        return pay(min(amount, 10))

    def open_to_all(amount: int) -> str:
        return pay(amount)

    def box_with(outer: Callable[[int], str]) -> Toolbox:
        wrapped = tool(destructive=True)(functools.wraps(pay)(outer))
        return Toolbox(tools=[wrapped], settings=Settings(data_dir=tmp_path / "data"))

    async with box_with(guarded) as box:
        paused = await box.call("pay", {"amount": 900}, user=ANN)
        assert isinstance(paused, Paused)
    async with box_with(open_to_all) as box:
        with pytest.raises(ToolConflictError, match="has changed since the question"):
            await box.approve(paused.pending_id, by=BOB)
    async with box_with(guarded) as box:
        outcome = await box.approve(paused.pending_id, by=BOB)
    assert isinstance(outcome, Completed)
    assert outcome.content == "paid 10"
