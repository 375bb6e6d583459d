"""Ids."""

import os

import pytest

from toolpost.runtime.attempt import IdMaker


def test_ids_differ_within_and_between_makers_and_sort_by_birth() -> None:
    first, second = IdMaker(), IdMaker()
    made = [first.make("call") for _ in range(1000)]
    assert made == sorted(set(made))
    assert not set(made) & {second.make("call") for _ in range(1000)}


@pytest.mark.programs
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_counts_from_another_start() -> None:
    maker = IdMaker()
    maker.make("call")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, maker.make("call").encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100).decode() != maker.make("call")
    os.close(read)
    os.close(write)
