"""The simulation finds mistakes that are planted in our own code; `make prove` plants all of them."""

import pytest

from tests.simulation.mutations import MUTATIONS, find

pytestmark = pytest.mark.programs


@pytest.mark.parametrize("name", ["claim_without_status", "unsafe_calls_are_retried"])
def test_a_planted_mistake_is_found(name: str) -> None:
    found = find(name, most_seeds=20)

    assert found.seed is not None
    assert found.promise


def test_there_are_at_least_ten_mistakes() -> None:
    assert len(MUTATIONS) >= 10
