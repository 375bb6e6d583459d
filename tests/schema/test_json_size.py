"""The number of values and the depth of documents before they are decoded."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.errors import ToolClientError
from toolpost.schema import json_size
from toolpost.schema.json_size import MAX_DEPTH, measure_json
from toolpost.schema.json_values import is_array, is_object

VALUES: Any = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a"\\,[{]}é', max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='k"\\,[', max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


def count(value: Any) -> int:
    if is_array(value):
        return 1 + sum(map(count, value))
    return 1 + sum(map(count, value.values())) if is_object(value) else 1


@given(VALUES, st.booleans())
def test_brackets_and_commas_in_strings_do_not_count_where_it_matters(value: Any, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_size, "_SLICE", 7)  # strings and escapes go over many slices
        assert measure_json(data, 2 * count(value)) <= 2 * count(value) or b'"' in data
        assert measure_json(data, 2 * count(value) + 1) + 1 >= count(value)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 300_000 + b"]" * 300_000,
        b"[[]," * 100_000 + b"0" + b"]" * 100_000,
        b'{"a":' * 100_000 + b"0" + b"}" * 100_000,
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
    ],
)
def test_a_document_that_is_nested_too_deeply_is_refused(data: bytes) -> None:
    with pytest.raises(ToolClientError, match="levels deep") as raised:
        measure_json(data)
    assert raised.value.error_code == "message_too_large"


@pytest.mark.parametrize(
    "data",
    [
        b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
        json.dumps(["[" * 1000, '"[{' * 1000, "\\" * 1001]).encode(),
        b'["' + b'\\"' * 500_000,
        b'"' * 1_000_000,
    ],
)
def test_other_documents_are_the_decoders_to_judge(data: bytes) -> None:
    assert measure_json(data, 1000) <= 1000


def test_a_text_with_many_commas_is_one_value() -> None:
    assert measure_json(json.dumps(["a, b, [c] " * 100_000]).encode(), 1000) <= 2
