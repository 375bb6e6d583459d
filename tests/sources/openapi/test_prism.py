"""Prism, a strict stranger, takes every request that we make of a document, and refuses those that are wrong."""

import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import parts
from tests.sources.openapi.apps.contract import DOCUMENT
from tests.sources.openapi.apps.serving import Caller, api_from, calling
from tests.specs import build_request
from toolpost.contracts.calls import NO_CREDENTIAL, Credential
from toolpost.contracts.errors import ToolAuthError, ToolClientError, ToolRateLimitError

pytestmark = pytest.mark.programs

OPEN = {"header": "k"}
POINT = {"x": 1, "y": -2}
TREE = {"name": "a", "note": None, "below": [{"name": "b", "size": "large"}, {"name": "c", "size": 3}]}
RIGHT: dict[str, dict[str, Any]] = {
    "GET /path/label/{p}": {"p": [1, 2]},
    "GET /path/matrix/{p}": {"p": [1, 2]},
    "GET /path/object/{p}": {"p": POINT},
    "GET /path/enum/{p}": {"p": "a b&c?"},
    "GET /query/form": {"q": [1, 2]},
    "GET /query/comma": {"q": [1, 2]},
    "GET /query/pipe": {"q": [1, 2]},
    "GET /query/object": {"q": POINT},
    "GET /query/deep": {"q": POINT},
    "GET /query/flag": {"q": False},
    "GET /query/enum": {"q": "a b&c"},
    "GET /query/number": {"q": 1e-7},
    "GET /header": {"X-Numbers": [1, 2]},
    "GET /optional": {"q": None},
    "POST /body/tree": {"body": TREE},
    "POST /body/list": {"body": [1, 2]},
    "POST /body/maybe": {},
    "POST /body/vendor": {"body": POINT},
    "POST /body/form": {"body": {"name": "Ann & Ü", "n": [1, 2], "deep": POINT, "on": True}},
    "POST /body/parts": {"body": {"name": "Ann & Ü", "file": {"base64": "AAH/", "filename": "a.bin"}}},
    "POST /body/text": {"body": "plain"},
    "POST /body/bytes": {"body": {"base64": "AAH/"}},
    "POST /body/xml": {"body": "<a/>"},
    "POST /body/named": {"body": 7, "body_": POINT},
}
WRONG: dict[str, dict[str, Any]] = {
    "GET /path/label/{p}": {"p": ["a", "b"]},
    "GET /path/matrix/{p}": {"p": [1]},
    "GET /path/object/{p}": {"p": {"x": 1}},
    "GET /path/enum/{p}": {"p": "other"},
    "GET /query/form": {"q": ["a", 2]},
    "GET /query/comma": {"q": [1, 2, 3]},
    "GET /query/pipe": {"q": ["a", "b"]},
    "GET /query/deep": {"q": {"x": "a", "y": 1}},
    "GET /query/flag": {"q": "perhaps"},
    "GET /query/enum": {"q": "a b"},
    "GET /query/number": {"q": 1},
    "GET /header": {"X-Numbers": [1, 2, 3]},
    "GET /optional": {"q": "a"},
    "POST /body/tree": {"body": {"name": "a", "below": [{}]}},
    "POST /body/list": {"body": [1]},
    "POST /body/vendor": {"body": {}},
    "POST /body/form": {"body": {"name": "Ann & Ü", "n": [1, 2], "deep": {"x": 1, "y": "a"}}},
    "POST /body/parts": {"body": {"name": "Ann"}},
    "POST /body/named": {"body": "a", "body_": POINT},
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    document = tmp_path_factory.mktemp("prism") / "openapi.json"
    document.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    with (
        parts.reserved_port() as port,
        subprocess.Popen(_prism(document, port), stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            assert any("is listening" in line for line in process.stdout), "Prism ended before it listened"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _prism(document: Path, port: int) -> list[str]:
    program = parts.found("node_modules/@stoplight/prism-cli/dist/index.js")
    options = ["--errors", "--verboseLevel", "info", "-h", "127.0.0.1", "-p", str(port)]
    return [str(parts.node24()), str(program), "mock", *options, str(document)]


@pytest.fixture
async def prism(address: str) -> AsyncIterator[Caller]:
    async with calling(await api_from(DOCUMENT, f"{address}/openapi.json"), address) as caller:
        yield caller


@pytest.mark.parametrize("wanted", RIGHT)
async def test_it_takes_what_we_send(prism: Caller, wanted: str) -> None:
    assert (await prism(wanted, RIGHT[wanted], schemes=OPEN)).content == {"ok": True}


@pytest.mark.parametrize("wanted", WRONG)
async def test_it_would_have_noticed(prism: Caller, wanted: str) -> None:
    with pytest.raises(ToolClientError) as caught:
        await prism(wanted, WRONG[wanted], schemes=OPEN)
    assert caught.value.status_code == 422
    assert "Invalid request: Your request is not valid" in str(caught.value)


@pytest.mark.parametrize(
    ("wanted", "content"),
    [
        ("GET /answer/vendor", {"data": []}),
        ("GET /answer/text", "plain"),
        ("GET /answer/two", [1]),
        ("DELETE /answer/nothing", None),
    ],
)
async def test_we_read_what_it_answers(prism: Caller, wanted: str, content: Any) -> None:
    assert (await prism(wanted, schemes=OPEN)).content == content


async def test_head_and_a_declared_failure_are_reported_as_what_they_are(prism: Caller) -> None:
    assert (await prism("HEAD /answer/head", schemes=OPEN)).content["status"] == 200
    with pytest.raises(ToolRateLimitError, match="429"):
        await prism("GET /answer/limit", schemes=OPEN)


KEYS: dict[str, tuple[dict[str, Any], Credential]] = {
    "GET /key/query": ({"query": "k&1"}, NO_CREDENTIAL),
    "GET /key/cookie": ({"cookie": "k;1"}, NO_CREDENTIAL),
    "GET /key/bearer": ({}, Credential("k", {"Authorization": "Bearer plain"})),
    "GET /key/basic": ({"basic": "ann:pw"}, NO_CREDENTIAL),
    "GET /key/both": ({"query": "k"}, Credential("k", {"Authorization": "Bearer plain"})),
}


@pytest.mark.parametrize("wanted", KEYS)
async def test_it_takes_each_credential_and_no_one_without(prism: Caller, wanted: str) -> None:
    schemes, credential = KEYS[wanted]
    assert (await prism(wanted, schemes=schemes, credential=credential)).content == {"ok": True}
    with pytest.raises(ToolAuthError, match="needs a credential for"):
        await prism(wanted)
    reply = await prism.send(build_request(prism.operation(wanted), {}))
    assert reply.status == 401


async def test_it_needs_none_where_the_document_says_so(prism: Caller) -> None:
    assert (await prism("GET /key/none", schemes=OPEN)).content == {"ok": True}
    assert prism.sent[0].presented.secrets == ()
