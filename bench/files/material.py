"""What the file tools are measured on: a tree of small files, and one large file."""

from __future__ import annotations

import random
import string
from dataclasses import dataclass
from pathlib import Path

IN_A_FOLDER = 100
NEEDLE = "needle_"
LINE = b"x" * 79 + b"\n"
_EVERY = 1000
_LINES_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScale:
    """How much is measured."""

    files: int
    gigabytes: float
    rounds: int

    @property
    def lines(self) -> int:
        """How many lines the large file has."""
        return int(self.gigabytes * (1 << 30)) // len(LINE) // _LINES_AT_ONCE * _LINES_AT_ONCE


FULL = FileScale(files=100_000, gigabytes=2, rounds=5)
QUICK = FileScale(files=5_000, gigabytes=0.25, rounds=3)


def make_tree(root: Path, files: int) -> None:
    """Files of about 600 bytes of words; one in a thousand holds what is searched for."""
    chance = random.Random(1)
    words = ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(3, 9))) for _ in range(2000)]
    for number in range(files):
        folder = root / f"{number // IN_A_FOLDER % 10}" / f"{number // IN_A_FOLDER}"
        if number % IN_A_FOLDER == 0:
            folder.mkdir(parents=True)
        lines = [" ".join(chance.choices(words, k=8)) for _ in range(12)]
        found = [f"{NEEDLE}{number}"] if number % _EVERY == 7 else []
        (folder / f"{number}.txt").write_text("\n".join([*lines, *found, ""]))


def make_large(path: Path, scale: FileScale) -> None:
    """Lines of 80 bytes."""
    with path.open("wb") as out:
        for _ in range(scale.lines // _LINES_AT_ONCE):
            out.write(LINE * _LINES_AT_ONCE)
