"""Records built fast are as those built by their class."""

import copy
import dataclasses
import pickle

import pytest

from toolpost.contracts.fast_dataclass import fast_frozen
from toolpost.contracts.spec import SafetyProfile, ToolSpec

new_spec = fast_frozen(ToolSpec)


def test_a_record_built_fast_is_as_one_built_by_its_class() -> None:
    plain = ToolSpec(name="a.b", source="a", safety=SafetyProfile(), replay="pure")
    fast = new_spec(name="a.b", source="a", safety=SafetyProfile(), replay="pure")

    assert type(fast) is ToolSpec
    assert fast == plain
    assert repr(fast) == repr(plain)
    assert fast.input_schema is not new_spec(name="c", safety=SafetyProfile(), replay="pure").input_schema
    assert dataclasses.replace(fast, name="c") == dataclasses.replace(plain, name="c")


def test_a_record_built_fast_is_frozen() -> None:
    fast = new_spec(name="a.b", safety=SafetyProfile(), replay="pure")

    with pytest.raises(dataclasses.FrozenInstanceError):
        fast.name = "c"  # type: ignore[misc]
    assert not hasattr(fast, "__dict__")


def test_a_record_built_fast_is_copied_and_pickled_as_its_class() -> None:
    fast = new_spec(name="a.b", safety=SafetyProfile(), replay="pure")

    for other in (pickle.loads(pickle.dumps(fast)), copy.copy(fast), copy.deepcopy(fast)):
        assert type(other) is ToolSpec
        assert other == fast


def test_a_keyword_that_the_class_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError):
        new_spec(name="a.b", no_field=1)  # type: ignore[call-arg]
