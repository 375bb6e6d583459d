"""Remembered results on a clock of their own."""

from toolpost import Completed
from toolpost.runtime.results import ResultCache


def result(content: int) -> Completed:
    return Completed("c", "r", "t", content)


def test_a_result_is_forgotten_when_its_time_is_over() -> None:
    now = [0.0]
    cache = ResultCache(clock=lambda: now[0])
    cache.put(("a",), result(1), ttl_s=10)
    now[0] = 10
    assert cache.get(("a",)) == result(1)
    now[0] = 10.1
    assert cache.get(("a",)) is None


def test_the_least_recently_used_goes_first() -> None:
    cache = ResultCache(capacity=2)
    cache.put(("a",), result(1), ttl_s=10)
    cache.put(("b",), result(2), ttl_s=10)
    cache.get(("a",))
    cache.put(("c",), result(3), ttl_s=10)
    assert cache.get(("b",)) is None
    assert cache.get(("a",)) is not None
