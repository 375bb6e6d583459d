"""Several manuals in one source: none holds up, hides or stands in for another."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.sources.utcp.serving import cli, in_file, manual, names, source, tool, toolbox
from tests.wire.site import Received, Site, reply


def text(content: str) -> dict[str, Any]:
    return {"call_template_type": "text", "content": content}


def of_text(name: str, **tools: str) -> dict[str, Any]:
    """The template of a manual whose tools say something."""
    told = manual(*(tool(one, text(said)) for one, said in tools.items()))
    return {"name": name, **text(json.dumps(told))}


def client(*templates: dict[str, Any]) -> dict[str, Any]:
    return {"manual_call_templates": list(templates)}


async def test_a_manual_that_keeps_silent_holds_up_no_other(tmp_path: Path) -> None:
    asked_for_both = asyncio.Event()

    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        if received.path == "/second":
            asked_for_both.set()
        await asked_for_both.wait()
        name = received.path.strip("/")
        writer.write(
            reply(body=json.dumps(manual(tool(name, {"call_template_type": "http", "url": site.url}))).encode())
        )

    async with Site(answer) as site:
        templates = [{"name": n, "call_template_type": "http", "url": f"{site.url}/{n}"} for n in ("first", "second")]
        async with toolbox(source(in_file(tmp_path, client(*templates)))) as box:
            assert (names(box), list(box.problems)) == ({"m.first", "m.second"}, [])


async def test_a_name_is_given_to_one_manual_only(tmp_path: Path) -> None:
    config = client(of_text("my-shop", get="mine"), of_text("my_shop", get="another"))
    async with toolbox(source(in_file(tmp_path, config))) as box:
        outcome = await box.call("m.get", {})
        [problem] = box.problems

    assert outcome.content == "mine"
    assert "manual 'my_shop' exists twice" in problem


async def test_a_longer_name_takes_none_that_is_taken(tmp_path: Path) -> None:
    config = client(of_text("shop", get="of the shop"), of_text("bank", get="of the bank", shop_get="a third"))
    async with toolbox(source(in_file(tmp_path, config))) as box:
        found, problems = names(box), list(box.problems)
        contents = {(await box.call(name, {})).content for name in found}

    assert problems == []
    assert contents == {"of the shop", "of the bank", "a third"}
    assert "m.shop_get" not in found


@pytest.mark.programs
@pytest.mark.parametrize("kind", ["file", "cli", "text"])
async def test_a_configuration_that_leads_to_another_is_reported(tmp_path: Path, kind: str) -> None:
    ways = {
        "file": {"call_template_type": "file", "file_path": "manual.json"},
        "cli": cli("cat manual.json"),
        "text": text(json.dumps(client(of_text("inner", get="x")))),
    }
    path = in_file(tmp_path, client({"name": "far", **ways[kind]}))
    async with toolbox(source(path)) as box:
        [state] = box.report

    assert "is a client configuration, and another one refers to it" in str(state.error)


async def test_a_manual_may_be_as_large_as_it_is_written(tmp_path: Path) -> None:
    large = {**manual(tool("get", text("x"))), "notes": [0] * 600_000}
    async with toolbox(source(in_file(tmp_path, large))) as box:
        assert names(box) == {"m.get"}
