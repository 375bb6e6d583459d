"""Texts that break careless code arrive as they were sent, wherever they are put, or are refused before they leave."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.sources.openapi.apps.serving import Caller, calling, served
from toolpost.contracts.errors import ToolValidationError
from toolpost.sources.openapi.models import ApiDescription, ApiOperation, FieldEncoding, Parameter, RequestBody

pytestmark = pytest.mark.programs

CONTROLS = ["line\nbreak", "carriage\rreturn", "\r\nSet-Cookie: a=b", "nul\0inside", "\x1b[31mred", "\x7f", "bell\x07"]
EDGES = [" before", "after ", "\ttab", "tab\t"]
STEPS = [".", "..", "../../etc/passwd", "..\\..\\boot.ini", "a/./b"]
OTHERS = [
    "undefined",
    "null",
    "true",
    "0",
    "-1.0e-7",
    "NaN",
    "1,2,3",
    "a b",
    "a+b",
    "a%20b",
    "%",
    "%zz",
    "%00",
    "%2e%2e%2f",
    "%c0%ae",
    "?x=1",
    "#fragment",
    "a&b=c",
    "a=b",
    "a;b",
    "a|b",
    "/",
    "//host/path",
    "http://user:pw@host:1/p?q#f",
    "\\",
    "a\\b",
    "'single' \"double\" `back`",
    "<script>alert(1)</script>",
    "'; DROP TABLE tools; --",
    "${HOME} $(id) `id`",
    "{{7*7}} {braces} {0}",
    "[brackets] (round) <angle>",
    "!@$^&*~:,.-_",
    "grüße øre ñandú",
    "日本語のテキスト",
    "עברית وعربي",
    "\u202eright to left",
    "zero\u200bwidth\ufeffmarks",
    "e\u0301 \u0301",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1f3\U0001f1f4",
    "\u2028line\u2029paragraph\u0085next",
    "\ufffd\ufffe\uffff",
    "x" * 3000,
]
NAUGHTY = [*OTHERS, *STEPS, *EDGES, *CONTROLS]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served("mirror") as address:
        yield address


@pytest.fixture
async def mirror(address: str) -> AsyncIterator[Caller]:
    async with calling(ApiDescription(title="", version="", operations=tuple(_operations(address))), address) as caller:
        yield caller


def _operations(server: str) -> Iterator[ApiOperation]:
    places: list[tuple[str, Any, Any]] = [("path", "path", "simple"), ("query", "query", "form")]
    for path, location, style in [*places, ("header", "header", "simple"), ("cookie", "cookie", "form")]:
        parameter = Parameter(name="X-Value", location=location, argument="value", schema=True, style=style)
        where = "/path/{X-Value}/end" if path == "path" else f"/{path}"
        yield ApiOperation(tool_name=path, method="get", path=where, servers=(server,), parameters=(parameter,))
    bodies = {"json": "application/json", "form": "application/x-www-form-urlencoded", "text": "text/plain"}
    for path, kind in {**bodies, "parts": "multipart/form-data"}.items():
        body = RequestBody(
            argument="value", content_type=kind, schema=True, parts={"file": FieldEncoding(is_file=True)}
        )
        yield ApiOperation(tool_name=path, method="post", path=f"/{path}", servers=(server,), body=body)


async def seen(mirror: Caller, wanted: str, value: Any) -> dict[str, Any]:
    content: dict[str, Any] = (await mirror(wanted, {"value": value})).content
    return content


async def test_in_a_query(mirror: Caller) -> None:
    for text in NAUGHTY:
        assert (await seen(mirror, "GET /query", text))["query"] == [["X-Value", text]]
        assert (await seen(mirror, "GET /query", [text, text]))["query"] == [["X-Value", text]] * 2


async def test_in_a_cookie(mirror: Caller) -> None:
    for text in NAUGHTY:
        assert (await seen(mirror, "GET /cookie", text))["cookies"] == {"X-Value": text}


async def test_in_a_path(mirror: Caller) -> None:
    for text in [text for text in NAUGHTY if text not in STEPS]:
        arrived = await seen(mirror, "GET /path/{X-Value}/end", text)
        assert arrived["path"] == f"/path/{text}/end"
        assert (arrived["query"], arrived["target"].count("/")) == ([], 3)


@pytest.mark.parametrize("text", STEPS)
async def test_steps_never_leave_in_a_path(mirror: Caller, text: str) -> None:
    with pytest.raises(ToolValidationError, match="change the path"):
        await seen(mirror, "GET /path/{X-Value}/end", text)
    assert mirror.sent == []


async def test_in_a_header(mirror: Caller) -> None:
    for text in [*OTHERS, *STEPS]:
        headers = (await seen(mirror, "GET /header", text))["headers"]
        assert [value for name, value in headers if name == "x-value"] == [text]


@pytest.mark.parametrize("text", [*CONTROLS, *EDGES])
async def test_control_characters_and_white_edges_never_leave_in_a_header(mirror: Caller, text: str) -> None:
    with pytest.raises(ToolValidationError, match="cannot be sent in the header"):
        await seen(mirror, "GET /header", text)
    assert mirror.sent == []


async def test_in_bodies(mirror: Caller) -> None:
    for text in NAUGHTY:
        carried = (await seen(mirror, "POST /json", {text: [text]}))["body"]
        assert json.loads(carried.encode("latin-1")) == {text: [text]}
        assert (await seen(mirror, "POST /form", {text: [text, text]}))["form"] == [[text, text]] * 2
        assert (await seen(mirror, "POST /text", text))["body"].encode("latin-1") == text.encode()


async def test_in_a_part_and_in_the_name_of_a_file(mirror: Caller) -> None:
    for text in NAUGHTY:
        value = {"field": text, "file": {"text": text, "filename": f"f-{text}"}}
        (_, field), (_, file) = (await seen(mirror, "POST /parts", value))["form"]
        escaped = "".join(f"%{ord(char):02X}" if char < " " or char in '"\x7f' else char for char in text)
        assert field == text
        assert file["content"].encode("latin-1") == text.encode()
        assert file["filename"] == f"f-{escaped}"
