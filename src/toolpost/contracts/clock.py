"""The time and the random numbers of a process."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The time and the random numbers of a process; a simulation passes others.

    `wall` is the time of day in seconds, which may jump, and `monotonic` never goes back. `chance` is a number in
    [0, 1). `random_bits` are for ids, and `secret_bytes` cannot be predicted from others.
    """

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    # Seeded again in a forked process. The system's generator takes 0.3 µs more, and 3 µs with a thread that writes,
    # because the system call releases the interpreter lock; `random.randbytes` takes 0.1 µs more (measured 2026-11).
    random_bits: Callable[[int], int] = random.getrandbits
    secret_bytes: Callable[[int], bytes] = os.urandom


SYSTEM_CLOCK = Clock()
