"""Long documents decoded piece by piece."""

import json
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from toolpost.schema.json_values import decode_in_pieces


def encode(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def listing(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": {"tools": list(items), **more}}


def tools(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"tool_{number}", "description": "words " * 40, **more} for number in range(count)]


@pytest.mark.parametrize(
    "document",
    [
        listing(*tools(2_000)),
        listing(*tools(2_000), nextCursor="next"),
        listing(*tools(2_000, inputSchema={"anyOf": [{"type": "string"}, {"type": "null"}], "maximum": 2**70})),
        listing(*tools(2_000, note='},{"name":"no tool"}]')),
        listing({"name": "only"}),
        tools(2_000),
    ],
)
def test_a_list_of_objects_is_decoded_as_a_whole_would_be(document: Any) -> None:
    assert decode_in_pieces(encode(document)) == document


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no JSON",
        b'{"result":{"tools":[]}}',
        b'{"result":{"tools":[{"name":"a"}',
        b'{"result":{"tools":[{"name":"a"},]}}',
        b'{"result":{"tools":[{"name":"a"}]}} more',
        b'{"result":"[{"name":"a"}]"}',
        encode({"a": [{"name": "x"}], "b": [{"name": "y"}]}),
        encode(listing(*tools(2_000, arguments=tools(2)))),
        encode(listing({"name": "x" * 2_000_000})),
        encode(listing({"name": "x"}, rows=[[1, 2]] * 400_000)),
    ],
)
def test_a_document_of_another_form_is_left_to_others(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever finds out
        decode_in_pieces(data)


BROKEN = st.sampled_from(['[{"', '"', "}]", '},{"name"', "\\", "[", "{}", ",", "\n", "the array is decoded in pieces"])


@given(st.lists(BROKEN | st.text(max_size=3), max_size=6), st.integers(0, 200_000), st.booleans())
def test_nothing_is_read_into_a_document_that_it_does_not_say(parts: list[str], where: int, inside: bool) -> None:
    document = listing(*tools(600, note="".join(parts)) if inside else tools(600))
    data = encode(document)
    if not inside:
        where %= len(data)
        data = data[:where] + "".join(parts).encode("utf-8", "replace") + data[where:]
    try:
        decoded = decode_in_pieces(data)
    except ValueError:
        event("left to others")
        return
    assert decoded == json.loads(data)
