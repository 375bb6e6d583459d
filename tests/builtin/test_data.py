"""JSON and base64."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builtin.caller import Caller
from toolpost.builtin.data import data_tools

CALLER = Caller(data_tools())


@pytest.mark.req("PDATA-01")
async def test_json_is_read() -> None:
    assert await CALLER.do("json_parse", text=' {"a": [1, 2.5, null, "é"]} ') == {"data": {"a": [1, 2.5, None, "é"]}}


@pytest.mark.parametrize(
    "text", ["", "{", "[1,]", "{'a': 1}", "NaN", "[Infinity]", "1 2", "9" * 5000, "[1e999]", "-1e400"]
)
async def test_what_is_no_json_is_refused_with_the_reason(text: str) -> None:
    error = await CALLER.refused("json_parse", text=text)

    assert error["error_code"] == "json_invalid"
    assert error["message"].startswith("not JSON: ")


@pytest.mark.parametrize("depth", [250, 10_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
async def test_json_that_nests_too_deeply_is_refused(depth: int, opening: str) -> None:
    closing = "]" if opening == "[" else "}"

    error = await CALLER.refused("json_parse", text=opening * depth + "1" + closing * depth)

    assert error["error_code"] == "json_too_deep"
    assert "200 levels" in error["message"]


async def test_json_of_a_hundred_levels_is_read() -> None:
    found = await CALLER.do("json_parse", text="[" * 100 + "]" * 100)

    assert json.dumps(found["data"]) == "[" * 100 + "]" * 100


@pytest.mark.req("PDATA-02")
@pytest.mark.parametrize(
    ("pretty", "text"),
    [(False, '{"a": [1, "é"], "b": null}'), (True, '{\n  "a": [\n    1,\n    "é"\n  ],\n  "b": null\n}')],
)
async def test_a_value_is_written_as_json(pretty: bool, text: str) -> None:
    assert await CALLER.do("json_stringify", data={"a": [1, "é"], "b": None}, pretty=pretty) == {"text": text}


async def test_a_value_that_holds_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)

    result = await CALLER.registry.find("json_stringify").tool.execute({"data": circle}, CALLER.context)

    assert not result.success


@pytest.mark.req("PDATA-03", "PDATA-04")
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"])))
async def test_every_text_comes_back_from_base64(text: str) -> None:
    encoded = (await CALLER.do("base64_encode", text=text))["encoded"]

    assert encoded == base64.b64encode(text.encode()).decode()
    assert await CALLER.do("base64_decode", encoded=encoded) == {"decoded": text}


@pytest.mark.parametrize("encoded", ["4oKs", "4oKs\n", " 4o Ks ", "Pz8_", "Pz8/", "YQ", "YQ=="])
async def test_base64_is_read_in_the_forms_in_which_it_is_met(encoded: str) -> None:
    decoded = (await CALLER.do("base64_decode", encoded=encoded))["decoded"]

    assert decoded in ("€", "???", "a")


@pytest.mark.parametrize("encoded", ["a", "%%%%", "YQ==YQ", "é"])
async def test_what_is_no_base64_is_refused(encoded: str) -> None:
    assert (await CALLER.refused("base64_decode", encoded=encoded))["error_code"] == "base64_invalid"


async def test_bytes_that_are_no_text_are_reported_as_such() -> None:
    error = await CALLER.refused("base64_decode", encoded=base64.b64encode(b"ok\xff\xfe").decode())

    assert error["error_code"] == "encoding_wrong"
    assert "4 decoded bytes" in error["message"]


async def test_half_a_surrogate_pair_is_refused() -> None:
    assert (await CALLER.refused("base64_encode", text="a\ud800"))["error_code"] == "encoding_wrong"
