"""The console's types of the REST API are those that the gateway's own document makes."""

import pytest

from tools.console_types import GENERATOR, TYPES, api_types


@pytest.mark.programs
def test_the_types_are_up_to_date() -> None:
    if not GENERATOR.exists():
        pytest.skip("NOT TESTED: openapi-typescript is not installed; run: make console")
    assert TYPES.read_text(encoding="utf-8") == api_types(), "run: python -m tools.console_types"
