"""Ids: short, random from the first character, reproducible with a seed."""

import os
import random
import re

import pytest

from toolpost.contracts.clock import Clock
from toolpost.contracts.ids import IdMaker


def test_an_id_is_a_prefix_and_twenty_random_hex_digits() -> None:
    assert re.fullmatch(r"run_[0-9a-f]{20}", IdMaker().make("run"))


def test_five_random_characters_name_one_of_a_few_thousand() -> None:
    seeded = IdMaker(Clock(random_bits=random.Random(7).getrandbits))
    made = [seeded.make("call")] + [IdMaker().make("call") for _ in range(3000)]
    assert len({an_id[:10] for an_id in made}) > 2950


def test_a_seed_makes_the_same_ids_again() -> None:
    first, second = (IdMaker(Clock(random_bits=random.Random(7).getrandbits)) for _ in range(2))
    assert [first.make("call") for _ in range(10)] == [second.make("call") for _ in range(10)]


@pytest.mark.programs
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_makes_other_ids() -> None:
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
