"""A service that repeats the credential it was sent tells it to nobody."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.patient_settings import PatientSettings
from tests.wire.site import Site, reply
from toolpost import Completed, Settings, Toolbox, tool
from toolpost.policy.secret_shapes import MASK

KEY = "sk-live-4f9aQz71LmPw03Xy"


async def said(site: Site, folder: Path, key: str = KEY, **settings: Any) -> Completed:
    """What a call with this key brings."""
    operation = {"operationId": "read", "responses": {"200": {"description": "Done."}}}
    document = {"openapi": "3.1.0", "info": {"title": "Echo", "version": "1"}, "paths": {"/": {"get": operation}}}
    (folder / "echo.json").write_text(json.dumps({**document, "servers": [{"url": site.url}]}))
    source = {
        "name": "echo",
        "transport": "http",
        "connection": str(folder / "echo.json"),
        "auth_type": "api_key",
        "auth_config": {"api_key": key},
    }
    given = PatientSettings.model_validate({"data_dir": folder / "data", "sources": [source], **settings})
    async with Toolbox(settings=given) as box:
        outcome = await box.call("echo.read", {})
    assert isinstance(outcome, Completed), outcome
    return outcome


def saying(told: Any) -> Site:
    return Site(reply(200, json.dumps(told).encode(), content_type="application/json"))


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ({"headers": {"X-API-Key": KEY}}, {"headers": {"X-API-Key": MASK}}),
        ([KEY, {KEY: 1}, 7, None], [MASK, {MASK: 1}, 7, None]),
        (f"you sent {base64.b64encode(KEY.encode()).decode()}", f"you sent {MASK}"),
        ({"token": "one of their own", "password": "x"}, {"token": "one of their own", "password": "x"}),
    ],
    ids=["object", "list", "base64", "other secrets"],
)
async def test_what_was_sent_is_taken_out_of_a_result_and_nothing_else_is(tmp_path: Path, told: Any, left: Any) -> None:
    async with saying(told) as site:
        assert (await said(site, tmp_path)).content == left


async def test_a_short_key_may_be_a_word_of_the_answer(tmp_path: Path) -> None:
    async with saying("a secret garden") as site:
        assert (await said(site, tmp_path, "secret garden")).content == "a secret garden"


async def test_neither_an_artifact_nor_its_preview_has_what_was_sent(tmp_path: Path) -> None:
    long = ["word"] * 120
    async with saying([*long, KEY, *long, KEY]) as site:
        outcome = await said(site, tmp_path, limits={"inline_bytes": 500})

    assert KEY not in f"{outcome.content} {outcome.text}"
    assert MASK in outcome.content["preview"]
    async with Toolbox(settings=Settings(data_dir=tmp_path / "data")) as box:
        stored = await box.store.artifacts.read(outcome.artifacts[0], tenant=None)
    assert (KEY.encode() in stored, MASK.encode() in stored) == (False, True)


@pytest.mark.parametrize("kept", range(1, len(KEY)))
async def test_a_secret_of_the_arguments_is_not_reported_in_half_where_a_preview_ends(
    tmp_path: Path, kept: int
) -> None:
    @tool(side_effects="read")
    async def repeat(password: str) -> str:
        return "x" * (1000 - kept) + password + "y" * 2000

    given = Settings.model_validate({"data_dir": None, "limits": {"inline_bytes": 500}})
    async with Toolbox(tools=[repeat], settings=given) as box:
        outcome = await box.call("repeat", {"password": KEY})

    assert isinstance(outcome, Completed)
    assert set(outcome.content["preview"]) <= set("x" + MASK + "y")
